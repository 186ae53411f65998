"""Structured placements: each mesh axis takes factors of the physical axes and walks the block that they make.

A structure is a way to write every mesh axis as a product over the physical axes (x, y, z and the cores of a chip), an
order of nesting where several mesh axes share a physical axis, and a walk of each mesh axis through its block: in rows,
in columns, or as a closed ring. Together they are every axis order, line, block and ring walk on every split.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

import numpy as np

from tuner.layouts.layout import Layout
from tuner.network.fabric import Ints
from tuner.network.rings import block_cycle, folded
from tuner.placements.placement import Placement
from tuner.placements.words import describe_axis
from tuner.slices.slice import Slice

Digits = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How a mesh axis goes through its block.

    Attributes:
        word: ``""`` for rows, else what people read (``walked as rings``).
        digits: position on each physical axis, in units of the axis's stride, for each index of the mesh axis.
    """

    word: str
    digits: tuple[Digits, ...]


@dataclass(frozen=True, kw_only=True)
class Structure:
    """A structured placement.

    Attributes:
        slice_: where it is.
        layout: whose mesh axes it places.
        factors: share of each physical axis that each mesh axis takes [mesh axes, physical axes].
        strides: distance between neighbours of a mesh axis on each physical axis [mesh axes, physical axes].
        walks: of each mesh axis.
    """

    slice_: Slice
    layout: Layout
    factors: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    walks: tuple[Walk, ...]

    @cached_property
    def devices(self) -> Ints:
        """Device index of each flattened mesh position [devices]."""
        weights = device_strides(self.slice_)
        total: Ints = np.zeros((1,) * len(self.walks), np.int64)
        for axis, (walk, stride) in enumerate(zip(self.walks, self.strides, strict=True)):
            offsets = np.array(walk.digits) @ (np.array(stride) * weights)
            total = total + offsets.reshape([-1 if k == axis else 1 for k in range(len(self.walks))])
        return total.ravel()

    @cached_property
    def description(self) -> str:
        """``tensor: 2x4 blocks, walked as rings; cfg: the two halves along y``."""
        extents = (*self.slice_.shape, self.slice_.cores)
        parts = []
        for (name, size), factors, strides, walk in zip(
            self.layout.axes, self.factors, self.strides, self.walks, strict=True
        ):
            if size > 1:
                words = describe_axis(factors, strides, extents, len(self.slice_.shape))
                parts.append(f"{name}: {words}{', ' + walk.word if walk.word else ''}")
        return "; ".join(parts) or "one device"

    @cached_property
    def complexity(self) -> tuple[int, int, int]:
        """Orders structures by how simple they are to read: walks, strided axes, physical axes that are split."""
        walks = sum(bool(walk.word) for walk in self.walks)
        laid = [pair for rows in zip(self.factors, self.strides, strict=True) for pair in zip(*rows, strict=True)]
        pieces = sum(factor > 1 for factor, _ in laid)
        strided = sum(factor > 1 and stride > 1 for factor, stride in laid)
        return walks, pieces, strided

    def placement(self) -> Placement:
        """Returns the placement with its description."""
        return Placement(devices=tuple(self.devices.tolist()), description=self.description)


def device_strides(slice_: Slice) -> Ints:
    """Returns by how much a device index grows along each physical axis, the cores last."""
    strides = [slice_.cores * math.prod(slice_.shape[:axis]) for axis in range(len(slice_.shape))]
    return np.array([*strides, 1], np.int64)


def splits(sizes: Sequence[int], extents: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yields every matrix of factors with these products of rows (mesh axes) and columns (physical axes)."""
    if not sizes:
        if all(extent == 1 for extent in extents):
            yield ()
        return
    for row in block_rows(sizes[0], extents):
        for rest in splits(sizes[1:], [extent // taken for extent, taken in zip(extents, row, strict=True)]):
            yield (row, *rest)


def block_rows(size: int, extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yields every block of `size` devices: what one mesh axis may take of physical axes with these extents."""
    if not extents:
        if size == 1:
            yield ()
        return
    for factor in range(1, math.gcd(size, extents[0]) + 1):
        if size % factor == 0 and extents[0] % factor == 0:
            for rest in block_rows(size // factor, extents[1:]):
                yield (factor, *rest)


def nestings(factors: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yields strides [mesh axes, physical axes] for every order in which mesh axes can share each physical axis."""
    columns = list(zip(*factors, strict=True))
    for orders in product(*(permutations([a for a, f in enumerate(column) if f > 1]) for column in columns)):
        strides = [[1] * len(columns) for _ in factors]
        for place, order in enumerate(orders):
            stride = 1
            for axis in order:  # innermost first
                strides[axis][place] = stride
                stride *= factors[axis][place]
        yield tuple(tuple(row) for row in strides)


def walks(factors: Sequence[int], *, ordered: bool, closed: bool = False) -> tuple[Walk, ...]:
    """Returns the walks of one mesh axis through its block.

    Args:
        factors: the block's extent on each physical axis.
        ordered: whether the order inside the block matters to the program; if not, rows are enough.
        closed: whether the block is a line that closes on itself, so that rows are a ring already.
    """
    rows = Walk(word="", digits=_rowwise(factors))
    used = [place for place, factor in enumerate(factors) if factor > 1]
    if not ordered or (len(used) == 1 and (factors[used[0]] < 3 or closed)) or not used:
        return (rows,)
    if len(used) == 1:
        return (rows, Walk(word="folded", digits=_spread(factors, used, [(k,) for k in folded(factors[used[0]])])))
    columns = _spread(factors, used, [tuple(reversed(d)) for d in np.ndindex(*(factors[p] for p in reversed(used)))])
    return (
        Walk(word="walked as rings", digits=_spread(factors, used, closed_walk([factors[place] for place in used]))),
        rows,
        Walk(word="walked along the first axis", digits=columns),
    )


def _rowwise(factors: Sequence[int]) -> tuple[Digits, ...]:
    return tuple(np.ndindex(*factors))


def _spread(factors: Sequence[int], used: Sequence[int], steps: Sequence[Digits]) -> tuple[Digits, ...]:
    out = []
    for step in steps:
        digits = [0] * len(factors)
        for place, digit in zip(used, step, strict=True):
            digits[place] = digit
        out.append(tuple(digits))
    return tuple(out)


def closed_walk(block: Sequence[int]) -> list[Digits]:
    """Returns a walk through a block of two or more axes whose hops are all 1, the last back to the first included.

    There is none if all extents are odd; the last hop is then longer.
    """
    *first, last = block
    path = snake(first)
    return [(*path[along], across) for along, across in block_cycle(len(path), last)]


def snake(block: Sequence[int]) -> list[Digits]:
    """Returns an open walk through a block whose hops are all 1."""
    if not block:
        return [()]
    *first, last = block
    inner = snake(first)
    return [(*step, turn) for turn in range(last) for step in (inner if turn % 2 == 0 else inner[::-1])]


def structures(slice_: Slice, layout: Layout, ordered: Collection[str] | None = None) -> Iterator[Structure]:
    """Yields every structured placement of a layout, before symmetric ones are merged.

    Args:
        slice_: the slice.
        layout: its sizes multiply to the number of devices.
        ordered: mesh axes along which the order inside a group matters; None means all of them.
    """
    extents = (*slice_.shape, slice_.cores)
    names = layout.axis_names
    for factors in splits(layout.shape, extents):
        choices = [
            walks(row, ordered=ordered is None or name in ordered, closed=closes(row, slice_))
            for name, row in zip(names, factors, strict=True)
        ]
        for strides in nestings(factors):
            for chosen in product(*choices):
                yield Structure(slice_=slice_, layout=layout, factors=factors, strides=strides, walks=chosen)


def closes(factors: Sequence[int], slice_: Slice) -> bool:
    """Returns whether a block reaches around an axis that closes on itself, so that a line of it is a ring."""
    closed = [
        w and (not slice_.twisted or n > min(slice_.shape)) for n, w in zip(slice_.shape, slice_.wrap, strict=True)
    ]
    return any(f == n and wraps for f, n, wraps in zip(factors, slice_.shape, closed, strict=False))
