"""Remembers arrays for sets of devices, whatever the order of their members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.network.fabric import Ints

Columns = tuple[NDArray[Any], ...]


class SetTable:
    """A growing table with one row for each set of devices that was asked for.

    A set is recognised by the sum of random 64-bit numbers of its members.

    Args:
        names: a random number for each device.
        compute: columns for groups [m, size] that are new, each with m rows.
        most: rows to keep; with more, the table starts anew.
    """

    def __init__(self, names: NDArray[np.uint64], compute: Callable[[Ints], Columns], most: int) -> None:
        self._names, self._compute, self._most = names, compute, most
        self._index: dict[int, int] = {}
        self._columns: Columns = ()

    def look_up(self, groups: Ints) -> tuple[Ints, Columns]:
        """Returns the row of each group [n, groups] for devices [n, groups, size], and the columns."""
        keys = self._names[groups].sum(axis=-1, dtype=np.uint64)
        distinct, first, inverse = np.unique(keys.ravel(), return_index=True, return_inverse=True)
        wanted = distinct.tolist()
        if len(self._index) + len(wanted) > max(self._most, len(wanted)):
            self._index, self._columns = {}, ()
        fresh = [position for position, key in enumerate(wanted) if key not in self._index]
        if fresh:
            self._append(self._compute(groups.reshape(-1, groups.shape[-1])[first[fresh]]))
            start = len(self._index)
            self._index.update({wanted[position]: start + offset for offset, position in enumerate(fresh)})
        rows: Ints = np.array([self._index[key] for key in wanted], np.int64)
        return rows[inverse].reshape(keys.shape), self._columns

    def _append(self, added: Columns) -> None:
        start = len(self._index)
        end = start + len(added[0])
        if not self._columns or end > len(self._columns[0]):
            grown = tuple(np.empty((max(64, 2 * end), *column.shape[1:]), column.dtype) for column in added)
            for old, new in zip(self._columns, grown, strict=False):
                new[:start] = old[:start]
            self._columns = grown
        for column, values in zip(self._columns, added, strict=True):
            column[start:end] = values
