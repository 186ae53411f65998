"""From a group of devices to the rings that the compiler builds for an all-reduce, all-gather or reduce-scatter.

Read from libtpu 0.0.50.1 and 0.0.42.1 ahead of time (its "replica info table"):

- v5e and v6e walk a group in an order of their own if all groups of the operation are evenly strided rectangles: a line
  that closes on a wrapped axis in its natural order, another line folded (0, 1, 3, 5, ..., 4, 2, all hops at most 2
  strides), a block as a cycle with hops of one stride. One group that is no such rectangle makes all groups of that
  operation fall back to the order in which they were listed. So does a line across the seam of a closed axis, but a
  block across it is one still, and takes its columns in an order of its own (`SEAM`).
- v4, v5p and v7x take the listed order.
- A group of the whole slice, and on 3-D slices of one whole plane, is worked on axis by axis: the data is divided into
  one colour for each axis, and colours take the axes in rotated orders, so that all axes are busy at once. On a twisted
  torus the colours of a whole slice go around rings of 2k chips first (libtpu's ``TwistedTorusND``, phases of 2k, k, k
  or 2k, 2k, k chips); it treats a plane as that of a plain torus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tuner.slices.slice import Slice
from tuner.slices.twist import rings_along

TOPOLOGY_AWARE = ("v5e", "v6e")
"""Generations whose compiler orders rectangular groups itself."""

ONE_RING_CHIPS = 8
"""A 2-D slice of at most so many chips is one ring, a larger one is worked on axis by axis (2x4 and 2x8, libtpu)."""

Ring = tuple[int, ...]

SEAM: dict[tuple[int, int], tuple[int, ...]] = {
    (2, 1): (1, 0),
    (4, 1): (3, 2, 1, 0),
    (4, 2): (2, 0, 1, 3),
    (4, 3): (1, 0, 2, 3),
    (8, 1): (7, 6, 5, 4, 3, 2, 1, 0),
    (8, 2): (6, 5, 4, 2, 0, 1, 3, 7),
    (8, 3): (5, 4, 3, 1, 0, 2, 6, 7),
    (8, 4): (4, 3, 2, 0, 1, 5, 7, 6),
    (8, 5): (3, 2, 1, 0, 4, 6, 7, 5),
    (8, 6): (2, 1, 0, 4, 6, 7, 5, 3),
    (8, 7): (1, 0, 4, 6, 7, 5, 3, 2),
}
"""In which order a block takes neighbouring columns across the seam of a closed axis, by their number and how many of
them lie behind the seam; columns count from the first one before it. As observed (v6e, axes of 8 and 16; libtpu
0.0.42.1); the rule behind it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Rings that carry the same share of an operand.

    Attributes:
        rings: closed walks over device indices, all of one length.
        share: bytes that an all-reduce of one byte for each device sends along every edge, in each direction.
    """

    rings: tuple[Ring, ...]
    share: float


def folded(n: int) -> list[int]:
    """Returns the cycle over a line of n that goes up over odd positions and down over even ones.

    >>> folded(8)
    [0, 1, 3, 5, 7, 6, 4, 2]
    """
    if n < 3:
        return list(range(n))
    return [0, *range(1, n, 2), *range(n - 1 - (n - 1) % 2, 0, -2)]


def block_cycle(width: int, height: int) -> list[tuple[int, int]]:
    """Returns a closed walk over a width x height block with hops of 1: along the first row, back in columns.

    Where both sides are odd there is none; the last hop is then longer than 1.
    """
    if width % 2 and height % 2 == 0:
        return [(x, y) for y, x in block_cycle(height, width)]
    walk = [(x, 0) for x in range(width)]
    for turn, x in enumerate(reversed(range(width))):
        column = range(1, height) if turn % 2 == 0 else range(height - 1, 0, -1)
        walk += [(x, y) for y in column]
    return walk


def rectangle_ring(slice_: Slice, group: Sequence[int]) -> Ring | None:
    """Returns the order in which v5e and v6e walk a group, or None if it is no evenly strided rectangle.

    Args:
        slice_: a 2-D slice.
        group: device indices in any order. A block across a seam has neighbouring columns, 2, 4 or 8 of them; others
            count as no rectangle, which the compiler was not asked about.
    """
    places = {slice_.coords(device): device for device in group}
    xs, ys = (sorted({place[axis] for place in places}) for axis in (0, 1))
    if len(xs) * len(ys) != len(group) or len(places) != len(group):
        return None
    if len(xs) > 1 and len(ys) > 1:
        columns, rows = _columns(slice_, 0, xs), _columns(slice_, 1, ys)
        if columns is None or rows is None:
            return None
        walk = [(columns[i], rows[j]) for i, j in block_cycle(len(xs), len(ys))]
    elif not (_even(xs) and _even(ys)):
        return None
    else:
        axis, line = (0, xs) if len(ys) == 1 else (1, ys)
        stride = line[1] - line[0] if len(line) > 1 else 0
        closed = slice_.wrap[axis] and len(line) * stride == slice_.shape[axis]
        order = range(len(line)) if closed else folded(len(line))
        walk = [(line[i], ys[0]) if axis == 0 else (xs[0], line[i]) for i in order]
    return tuple(places[place] for place in walk)


def _columns(slice_: Slice, axis: int, line: list[int]) -> list[int] | None:
    """Returns the columns of a block in the order in which it takes them, or None if they are not evenly strided."""
    if _even(line):
        return line
    size = slice_.shape[axis]
    behind = next((k for k, (a, b) in enumerate(pairwise(line), start=1) if b - a > 1), 0)
    order = SEAM.get((len(line), behind)) if slice_.wrap[axis] else None
    run = [*(k - size for k in line[behind:]), *line[:behind]]
    if order is None or run != list(range(run[0], run[0] + len(run))):
        return None
    return [run[k] % size for k in order]


def _even(line: list[int]) -> bool:
    return len({b - a for a, b in pairwise(line)}) <= 1


def axis_walks(slice_: Slice, group: Sequence[int]) -> tuple[Walk, ...] | None:
    """Returns the axis-by-axis walks of a group, or None if the compiler builds one ring for it.

    They are used for a group of all chips (of more than 8 on 2-D slices), and on 3-D slices for one whole plane. Where
    the group holds both cores of its chips, the first axis of each colour takes the cores in: one ring up along the
    first cores and down along the second ones (libtpu's table of shard ids on v7x).
    """
    if slice_.twisted and len(set(group)) == slice_.num_devices:
        return _twisted_walks(slice_)
    box = _box(slice_, group)
    if box is None:
        return None
    sizes = [len(span) for span in box[:-1]]
    whole = sum(a == b for a, b in zip(sizes, slice_.shape, strict=True))
    if len(slice_.shape) == 2:
        if whole < 2 or slice_.num_chips <= ONE_RING_CHIPS:
            return None
    elif whole < 2 or any(1 < a < b for a, b in zip(sizes, slice_.shape, strict=True)):
        return None
    used = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(used) < 2:
        return None
    cores = len(box[-1])
    out = [_by_axis(slice_, group, sizes, used, axis, cores) for axis in used]
    return tuple(walk for walks_ in out for walk in walks_)


def _twisted_walks(slice_: Slice) -> tuple[Walk, ...]:
    """Returns the walks of a whole twisted torus: on each axis, what three colours bring to it in their three phases.

    How the members of a later phase lie on rings of 2k chips is not known; they are taken to load these evenly.
    """
    share, brought = 0.0, 1 / 3
    for size in sorted(slice_.shape, reverse=True):
        share += brought * (size - 1) / size
        brought /= size
    return tuple(Walk(rings=tuple(map(tuple, rings_along(slice_, axis).tolist())), share=share) for axis in range(3))


def _box(slice_: Slice, group: Sequence[int]) -> list[list[int]] | None:
    """Returns the coordinates that a group takes on each axis, then its cores, if it fills their product, else None."""
    places = [(*slice_.coords(device), slice_.core(device)) for device in group]
    spans = [sorted(set(axis)) for axis in zip(*places, strict=True)]
    return spans if math.prod(map(len, spans)) == len(set(places)) == len(group) else None


def _by_axis(
    slice_: Slice, group: Sequence[int], sizes: list[int], used: list[int], axis: int, cores: int
) -> list[Walk]:
    """Returns what all colours do along one axis.

    A colour starts with 1/k of the operand for k axes, and what it brings to an axis has been divided by the sizes of
    the axes before. Half of a colour goes each way around, twice (scatter, then gather).
    """
    size, colours = sizes[axis], len(used)
    lines = _lines(slice_, group, axis)
    out, later = [], 0.0
    for start in range(colours):
        before = [*used[start:], *used[:start]]
        before = before[: before.index(axis)]
        if before or cores == 1:
            brought = 1 / colours / math.prod(sizes[k] for k in before) / cores
            later += brought * (size - 1) / size
        else:
            up_and_down = tuple((*up, *reversed(down)) for up, down in zip(lines[::2], lines[1::2], strict=True))
            out.append(Walk(rings=up_and_down, share=(2 * size - 1) / (2 * size) / colours))
    natural = slice_.wrap[axis] or slice_.generation_name not in TOPOLOGY_AWARE
    order = range(size) if natural else folded(size)
    return [*out, Walk(rings=tuple(tuple(line[i] for i in order) for line in lines), share=later)]


def _lines(slice_: Slice, group: Sequence[int], axis: int) -> list[Ring]:
    """Returns the lines of a box along one axis in natural order; those of two cores of the same chips are
    neighbours."""
    lines: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for device in group:
        place = (*slice_.coords(device), slice_.core(device))
        lines.setdefault((*place[:axis], *place[axis + 1 :]), []).append((place[axis], device))
    return [tuple(device for _, device in sorted(line)) for _, line in sorted(lines.items())]


def walks(slice_: Slice, group: Sequence[int]) -> tuple[Walk, ...] | None:
    """Returns how the compiler walks a group by its own order, or None if it takes the listed order.

    The result depends on which devices are in the group, not on their order.

    Args:
        slice_: the slice.
        group: device indices.
    """
    if len(group) == 1:
        return ()
    by_axis = axis_walks(slice_, group)
    if by_axis is not None:
        return by_axis
    if slice_.generation_name in TOPOLOGY_AWARE:
        ring = rectangle_ring(slice_, group)
        if ring is not None:
            return (Walk(rings=(ring,), share=ring_share(len(group))),)
    return None


def may_have_own_order(slice_: Slice, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns False for groups [m, size] that `walks` has no answer for: those that do not fill a box of coordinates.

    A quick look at many groups at once; True promises nothing.
    """
    chip = groups // slice_.cores
    filled = np.ones(len(groups), np.int64)
    stride = 1
    for size in slice_.shape:
        places = np.sort(chip // stride % size, axis=1)
        filled *= 1 + (np.diff(places, axis=1) != 0).sum(axis=1)
        stride *= size
    return np.asarray((filled == groups.shape[1]) | (filled * slice_.cores == groups.shape[1]))


def ring_share(length: int) -> float:
    """Returns the share of an all-reduce's operand that each edge of one ring carries, each way: (g-1)/g."""
    return (length - 1) / length


def all_walks(slice_: Slice, groups: Sequence[Sequence[int]]) -> tuple[tuple[Walk, ...], ...]:
    """Returns the walks of all groups of one operation: the compiler's own order for all of them, or for none."""
    found = [walks(slice_, group) for group in groups]
    known = tuple(walk for walk in found if walk is not None)
    if len(known) == len(found):
        return known
    return tuple((Walk(rings=(tuple(group),), share=ring_share(len(group))),) for group in groups)
