"""Shapes as HLO text writes them, and the bytes that they take in tiled memory.

``bf16[1,32768,3,128]{3,2,0,1:T(4,128)(2,1)S(1)}`` is an element type, dimensions, the order of the dimensions from
minor to major, tiles and a memory space. The first tile pads the minor dimensions up to its multiples, so that array
takes 4/3 of what its elements need; the tiles after it only order elements inside of the first.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

HBM = 0
"""Memory space of arrays that name none."""
VMEM = 1
"""On-chip vector memory, written ``S(1)``."""

_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,<= ]*)\](?:\{([0-9,]*)(?::([^{}]*))?\})?")
_FIRST_TILE = re.compile(r"T\(([0-9,*]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_ELEMENT_BITS = re.compile(r"E\((\d+)\)")
_BITS = re.compile(r"^(?:[suf]|bf|c)(\d+)|^f8")
_ODD_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One array. `minor_to_major` lists dimensions fastest first; `tile` is the first tile, outermost first."""

    dtype: str
    dimensions: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    space: int = HBM
    bits: int = 0

    @property
    def elements(self) -> int:
        """Number of elements, without padding."""
        return math.prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes in memory, tile padding included."""
        order = self.minor_to_major or tuple(reversed(range(len(self.dimensions))))
        padded = [self.dimensions[dimension] for dimension in reversed(order)]
        padded = [1] * (len(self.tile) - len(padded)) + padded
        for offset, size in enumerate(self.tile):
            position = len(padded) - len(self.tile) + offset
            padded[position] = -(-padded[position] // size) * size
        return math.prod(padded) * self.bits // 8

    @property
    def scalar(self) -> bool:
        """True for what is not worth counting: a single number, a token, an empty array."""
        return not self.dimensions or self.bits == 0 or self.elements <= 1


@lru_cache(maxsize=4096)
def shapes(text: str) -> tuple[Shape, ...]:
    """Returns the arrays of a type, flattened if it is a tuple."""
    return tuple(_shape(match) for match in _SHAPE.finditer(text))


def _shape(match: re.Match[str]) -> Shape:
    dtype, dimensions, order, layout = match.groups()
    layout = layout or ""
    tile = _FIRST_TILE.search(layout)
    space = _SPACE.search(layout)
    bits = _ELEMENT_BITS.search(layout)
    return Shape(
        dtype=dtype,
        dimensions=_numbers(dimensions.replace("<=", "")),
        minor_to_major=_numbers(order or ""),
        # A ``*`` tile merges a dimension with the next one and pads nothing by itself.
        tile=() if tile is None or "*" in tile[1] else _numbers(tile[1]),
        space=HBM if space is None else int(space[1]),
        bits=_bits(dtype) if bits is None or bits[1] == "0" else int(bits[1]),
    )


def _bits(dtype: str) -> int:
    if dtype in _ODD_BITS:
        return _ODD_BITS[dtype]
    match = _BITS.match(dtype)
    return 8 if match is None or match[1] is None else int(match[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())
