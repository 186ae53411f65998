"""Directed links between neighbouring chips (ICI)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.slices.slice import Slice
from tuner.slices.twist import chip_index, onto_grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Every directed link of a slice, ordered by axis, direction and source. All arrays have shape (links,).

    Attributes:
        source: index of the sending chip, x fastest.
        target: index of the receiving chip.
        axis: along which the link runs.
        step: +1 or -1, the direction along the axis. A wraparound link from the last chip to the first is +1.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    axis: NDArray[np.int8]
    step: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.source)


def chip_coords(slice_: Slice) -> NDArray[np.int32]:
    """Returns the coordinates of every chip, shape (chips, dimensions), in the order of chip indices."""
    axes = np.indices(slice_.shape[::-1], dtype=np.int32).reshape(len(slice_.shape), -1)
    return axes[::-1].T.copy()


def links(slice_: Slice) -> Links:
    """Enumerates the directed links of a slice, one in each direction between neighbours.

    An axis that wraps has links between its ends; on an axis of two chips these are the links that are there anyway,
    and an axis of one chip has none. On a twisted torus they end further along the long axes. The link between two
    cores of a chip is not one of them.
    """
    coords = chip_coords(slice_)
    source, target, axes, steps = [], [], [], []
    for axis, (size, wraps) in enumerate(zip(slice_.shape, slice_.wrap, strict=True)):
        for step in (1, -1):
            moved = coords.copy()
            moved[:, axis] += step
            closed = wraps and size > 2
            inside = np.flatnonzero(closed | ((moved[:, axis] >= 0) & (moved[:, axis] < size)))
            source.append(inside.astype(np.int32))
            target.append(chip_index(slice_, onto_grid(slice_, moved[inside])).astype(np.int32))
            axes.append(np.full(len(inside), axis, np.int8))
            steps.append(np.full(len(inside), step, np.int8))
    return Links(
        source=np.concatenate(source),
        target=np.concatenate(target),
        axis=np.concatenate(axes),
        step=np.concatenate(steps),
    )
