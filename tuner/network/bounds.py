"""What any algorithm and any routing need at least: a bound from cuts of the slice.

A cut divides the chips in two. The bytes that one side must learn from the other, over the rate of all links between
them, bound the time from below, whatever the compiler does. Cuts are all slabs across an axis (two positions on a
closed axis) and every chip against the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tuner.network.cost import Network
from tuner.network.fabric import Floats
from tuner.network.fabrics import fabric
from tuner.program.program import Collective, CollectiveKind
from tuner.slices.slice import Slice

Sides = NDArray[np.bool_]


@lru_cache(maxsize=64)
def cuts(slice_: Slice) -> Sides:
    """Returns the cuts as bool [cuts, num_devices]: True on one side."""
    coords = np.array([slice_.coords(device) for device in range(slice_.num_devices)])
    sides = []
    for axis, size in enumerate(slice_.shape):
        if slice_.wrap[axis] and size > 2:
            spans = list(combinations(range(size), 2))
        else:
            spans = [(0, end) for end in range(1, size)]
        sides += [(coords[:, axis] >= start) & (coords[:, axis] < end) for start, end in spans]
    chip = np.arange(slice_.num_devices) // slice_.cores
    if slice_.num_chips > 1:
        sides += [chip == k for k in range(slice_.num_chips)]
    return np.array(sides, bool).reshape(-1, slice_.num_devices)


@lru_cache(maxsize=64)
def _crossing(slice_: Slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the device at both ends of every existing link between chips."""
    links = fabric(slice_)
    ends = [links.link_ends(link) for link in np.flatnonzero(links.exists).tolist()]
    return (
        np.array([slice_.device(start) for start, _ in ends], np.int64),
        np.array([slice_.device(end) for _, end in ends], np.int64),
    )


def cut_bound_s(network: Network, collective: Collective, devices: Sequence[int]) -> float:
    """Returns the least time in which a collective's bytes can cross every cut, without any latency.

    Args:
        network: links and their rates.
        collective: any kind; 0 for one between slices.
        devices: device index of each logical id.
    """
    if collective.kind is CollectiveKind.DCN:
        return 0.0
    sides = cuts(network.slice_)
    if not len(sides):
        return 0.0
    rate = 1 / network.seconds_per_byte[fabric(network.slice_).exists]  # 0 for a missing link
    start, end = _crossing(network.slice_)
    worst = 0.0
    for inside in (sides, ~sides):
        capacity: Floats = ((inside[:, start] & ~inside[:, end]) * rate).sum(axis=1)
        bytes_ = _must_cross(collective, inside[:, np.asarray(devices)])
        needed = bytes_ > 0
        with np.errstate(divide="ignore"):
            worst = max(worst, float((bytes_[needed] / capacity[needed]).max(initial=0.0)))
    return worst


def _must_cross(collective: Collective, inside: Sides) -> Floats:
    """Returns bytes that must go from the inside to the outside of each cut; `inside` is over logical ids."""
    if collective.kind is CollectiveKind.COLLECTIVE_PERMUTE:
        source, target = np.asarray(collective.pairs).T
        crossing = (inside[:, source] & ~inside[:, target]).sum(axis=1)
        return np.asarray(crossing * float(collective.operand_bytes))
    sizes = {len(group) for group in collective.groups}
    return np.asarray(np.sum([_must_leave(collective, inside, size) for size in sorted(sizes)], axis=0))


def _must_leave(collective: Collective, inside: Sides, size: int) -> Floats:
    """Returns what `_must_cross` does for the groups of one size."""
    groups = np.asarray([group for group in collective.groups if len(group) == size])
    near = inside[:, groups].sum(axis=2)
    far = size - near
    split = (near > 0) & (far > 0)
    match collective.kind:
        case CollectiveKind.ALL_REDUCE:
            each = split * float(collective.operand_bytes)
        case CollectiveKind.REDUCE_SCATTER:
            each = split * far * (collective.operand_bytes / size)
        case CollectiveKind.ALL_GATHER:
            each = split * near * (collective.result_bytes / size)
        case _:
            each = near * far * (collective.operand_bytes / size)
    return np.asarray(each.sum(axis=1))
