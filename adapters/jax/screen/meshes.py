"""Shardy's meshes, shardings and axis lists, read from the text of their attributes.

The text is read, not the Python classes: the bindings hand most of these attributes out as opaque, and differ between
releases where they do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A mesh axis, or the part of it of `size` after a part of `pre` (Shardy's ``"x":(pre)size``)."""

    name: str
    pre: int = 1
    size: int = 0


Sharding = tuple[tuple[AxisRef, ...], ...]
"""Axes of each dimension, major first."""

_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')
_SHARDING = re.compile(r"<(?:@\w+|mesh<.*?>|<.*?>), \[(.*?)\]")
_DIMENSION = re.compile(r"\{([^}]*)\}")


@cache
def axis_refs(text: str) -> tuple[AxisRef, ...]:
    """Returns the axes named in a text, in order."""
    return tuple(
        AxisRef(match[1], int(match[2]), int(match[3])) if match[2] else AxisRef(match[1])
        for match in _AXIS.finditer(text)
    )


@cache
def shardings(text: str) -> tuple[Sharding, ...]:
    """Returns the shardings in the text of a sharding or of shardings per value, one for each value."""
    return tuple(
        tuple(axis_refs(dimension[1]) for dimension in _DIMENSION.finditer(match[1]))
        for match in _SHARDING.finditer(text)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Named axes, outermost first; the flattened index over them is the logical device id."""

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, text: str) -> Mesh:
        """Reads ``#sdy.mesh<["x"=2, "y"=4]>``."""
        return cls(axes=tuple((name, int(size)) for name, size in re.findall(r'"([^"]+)"=(\d+)', text)))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(size for _, size in self.axes)

    def size(self, ref: AxisRef) -> int:
        """Returns the number of devices along an axis or a part of one."""
        return ref.size or dict(self.axes)[ref.name]

    def local_shape(self, shape: tuple[int, ...], sharding: Sharding) -> tuple[int, ...]:
        """Returns the shape that one device holds; a dimension that does not divide is padded up."""
        if not any(sharding):
            return shape
        parts = [math.prod(map(self.size, axes)) for axes in sharding]
        return tuple(-(-size // part) for size, part in zip(shape, parts, strict=True))

    def groups(self, refs: tuple[AxisRef, ...]) -> Groups:
        """Returns the groups of logical ids that differ only along `refs`, each in their order."""
        steps = [(self._stride(ref), self.size(ref)) for ref in refs]
        offsets = [
            sum(digit * stride for digit, (stride, _) in zip(digits, steps, strict=True))
            for digits in product(*(range(size) for _, size in steps))
        ]
        bases = (i for i in range(self.devices) if all(i // stride % size == 0 for stride, size in steps))
        return tuple(tuple(base + offset for offset in offsets) for base in bases)

    def axes_of(self, groups: Groups) -> tuple[str, ...]:
        """Returns the names of the mesh axes along which the members of a group differ."""
        first = groups[0]
        return tuple(
            name
            for name, size in self.axes
            if len({member // self._stride(AxisRef(name)) % size for member in first}) > 1
        )

    def permutation(self, source: Sharding, target: Sharding) -> tuple[tuple[int, int], ...]:
        """Returns the (source, target) ids that turn one sharding into another of the same local shape.

        A device that already holds what it needs is not listed.
        """
        holders: dict[tuple[int, ...], list[int]] = {}
        for device in range(self.devices):
            holders.setdefault(self._shard(device, source), []).append(device)
        return tuple(self._moves(holders, target))

    def _moves(self, holders: dict[tuple[int, ...], list[int]], target: Sharding) -> Iterator[tuple[int, int]]:
        for device in range(self.devices):
            candidates = holders[self._shard(device, target)]
            if device not in candidates:
                yield candidates[device % len(candidates)], device

    def _shard(self, device: int, sharding: Sharding) -> tuple[int, ...]:
        shard = []
        for axes in sharding:
            index = 0
            for ref in axes:
                index = index * self.size(ref) + device // self._stride(ref) % self.size(ref)
            shard.append(index)
        return tuple(shard)

    def _stride(self, ref: AxisRef) -> int:
        stride = 1
        for name, size in reversed(self.axes):
            if name == ref.name:
                return stride * (size // (ref.pre * ref.size)) if ref.size else stride
            stride *= size
        raise KeyError(ref.name)
