"""Which placements are the same: images of one another under the slice's symmetries, or equal for the compiler.

Placements are compared by 64-bit keys, the smallest over all symmetries. A key for a program looks only at what its
collectives see: who is in a group together where the order does not matter, who sends to whom where it does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.network.fabric import Ints
from tuner.network.patterns import Flow, Pattern
from tuner.network.rings import TOPOLOGY_AWARE, walks
from tuner.slices.links import chip_coords
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries
from tuner.slices.twist import chip_index, onto_grid

Keys = NDArray[np.uint64]

ENTRIES_AT_ONCE = 1 << 22
"""Bound on moved positions in memory at once."""


def mixed(keys: Keys) -> Keys:
    """Returns keys scrambled so that sums of them do not cancel (the finisher of splitmix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _is_ring(pattern: Pattern) -> bool:
    return pattern.flow is Flow.RING and len(pattern.members[0]) > 2


def _is_plane(slice_: Slice, pattern: Pattern) -> bool:
    """Returns whether groups may be planes of the grid, which the compiler walks axis by axis, by their size."""
    planes = [slice_.num_chips // size for size in slice_.shape]
    return pattern.flow is Flow.RING and len(pattern.members[0]) in planes


class Canon:
    """Computes keys of placements.

    Args:
        slice_: whose symmetries count.
        patterns: what the program's collectives see; None tells all placements apart that are no images of another.
        symmetric: False where links differ, so that images are not the same.
    """

    def __init__(self, slice_: Slice, patterns: Sequence[Pattern] | None = None, *, symmetric: bool = True) -> None:
        self._slice = slice_
        self._patterns = patterns
        if slice_.twisted and any(_is_plane(slice_, pattern) for pattern in patterns or ()):
            symmetric = False  # a turned plane is no plane of the grid, and is walked otherwise
        moves = symmetries(slice_, translations=False) if symmetric else np.arange(slice_.num_devices)[None]
        self._moves: Ints = moves.astype(np.int64)
        closed = [wrap and size > 2 for wrap, size in zip(slice_.wrap, slice_.shape, strict=True)]
        # Shifted over the seam of a closed axis, a group is walked in another order by compilers with one of their own.
        seams = slice_.generation_name in TOPOLOGY_AWARE and any(_is_ring(pattern) for pattern in patterns or ())
        self._shifts = symmetric and any(closed) and not seams
        numbers = np.random.default_rng(1)
        self._names: Keys = numbers.integers(1, 1 << 63, slice_.num_devices, np.uint64)
        self._rectangles: dict[frozenset[int], bool] = {}

    def keys(self, placements: Ints) -> Keys:
        """Returns a key for each placement [n]; equal keys mean equal placements."""
        step = max(1, ENTRIES_AT_ONCE // self._moves.size)
        parts = [self._keys(placements[at : at + step]) for at in range(0, len(placements), step)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

    def _keys(self, placements: Ints) -> Keys:
        images = self._moves[:, placements].transpose(1, 0, 2)
        if self._shifts:
            images = self._homed(images)
        if self._patterns is None:
            return np.asarray(self._in_order(images).min(axis=1))
        total: Keys = np.zeros(images.shape[:2], np.uint64)
        for number, pattern in enumerate(self._patterns):
            members = images[..., np.asarray(pattern.members)]
            ordered = self._is_ordered(pattern, placements)
            listed = self._sent_key(members) if pattern.flow is Flow.PERMUTE else self._ring_key(members)
            keys = np.where(ordered[:, None], listed, self._set_key(members))
            total += mixed(keys + np.uint64(number + 1))
        return np.asarray(total.min(axis=1))

    def _homed(self, images: Ints) -> Ints:
        """Shifts each image along closed axes so that mesh position 0 is at their beginning."""
        slice_ = self._slice
        if slice_.twisted:
            places = chip_coords(slice_)[images]
            return chip_index(slice_, onto_grid(slice_, places - places[..., :1, :]))
        chip, core = images // slice_.cores, images % slice_.cores
        moved: Ints = np.zeros_like(images)
        stride = 1
        for size, wrap in zip(slice_.shape, slice_.wrap, strict=True):
            position = chip // stride % size
            if wrap and size > 2:
                position = (position - position[..., :1]) % size
            moved += position * stride
            stride *= size
        return moved * slice_.cores + core

    def _in_order(self, images: Ints) -> Keys:
        steps = np.arange(1, images.shape[-1] + 1, dtype=np.uint64)
        keys: Keys = mixed(self._names[images] + steps).sum(axis=-1, dtype=np.uint64)
        return keys

    def _sent_key(self, pairs: Ints) -> Keys:
        keys: Keys = self._hop(pairs[..., 0], pairs[..., 1]).sum(axis=-1, dtype=np.uint64)
        return keys

    def _ring_key(self, members: Ints) -> Keys:
        after = np.roll(members, -1, axis=-1)  # a ring carries the same both ways
        keys: Keys = (self._hop(members, after) + self._hop(after, members)).sum(axis=(-1, -2), dtype=np.uint64)
        return keys

    def _hop(self, source: Ints, target: Ints) -> Keys:
        return mixed(self._names[source] + np.uint64(3) * self._names[target])

    def _set_key(self, members: Ints) -> Keys:
        keys: Keys = mixed(self._names[members].sum(axis=-1, dtype=np.uint64)).sum(axis=-1, dtype=np.uint64)
        return keys

    def _is_ordered(self, pattern: Pattern, placements: Ints) -> NDArray[np.bool_]:
        """Returns whether the order inside the groups of a pattern matters [n]."""
        count = len(placements)
        if pattern.flow is Flow.PERMUTE:
            return np.ones(count, bool)
        if pattern.flow is Flow.EXCHANGE or len(pattern.members[0]) <= 2:
            return np.zeros(count, bool)
        if self._slice.generation_name not in TOPOLOGY_AWARE and len(pattern.members) > 1:
            return np.ones(count, bool)
        groups = placements[:, np.asarray(pattern.members)].tolist()
        return np.array([not all(self._known(group) for group in row) for row in groups], bool)

    def _known(self, group: list[int]) -> bool:
        members = frozenset(group)
        if members not in self._rectangles:
            self._rectangles[members] = walks(self._slice, group) is not None
        return self._rectangles[members]
