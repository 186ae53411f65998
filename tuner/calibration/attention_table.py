"""The table of cycles of the splash attention kernel that ships with the package, read when it is first asked for.

`benchmarks/attention_cycles.py` makes it: it counts the VLIW bundles that the compiler schedules for one grid step,
and for the start and the finish of a query block.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import pairwise

from tuner.errors import InvalidValue, UnknownName

Blocks = tuple[int, int, int]
"""Lengths of the query, key/value and key/value compute blocks."""

_LANES = 128


class Variant(StrEnum):
    """What the kernel does besides attention. Values are stored: only add, never remove."""

    PLAIN = "plain"  # every key counts
    MASKED = "masked"  # a function of the indices hides keys; it is evaluated in every step, not the last only
    SEGMENTED = "segmented"  # segment ids hide keys, in every step too
    RESIDUALS = "residuals"  # also writes the log of the sum of exponentials, as ring attention needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cycles of one core for one choice of blocks.

    Attributes:
        step: one grid step, neither the first nor the last of its query block.
        start: what the first step of a query block adds.
        finish: what the last one adds.
        vmem_bytes: scoped VMEM that the compiled kernel uses.
    """

    blocks: Blocks
    step: float
    start: float
    finish: float
    vmem_bytes: float

    def scaled(self, blocks: Blocks) -> Row:
        """The row of other blocks at the same cycles for each floating-point operation."""
        queries = blocks[0] / self.blocks[0]
        return Row(
            blocks=blocks,
            step=self.step * queries * blocks[1] / self.blocks[1],
            start=self.start * queries,
            finish=self.finish * queries,
            vmem_bytes=self.vmem_bytes * queries * max(1.0, blocks[1] / self.blocks[1]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one generation, head size and variant, as one toolchain compiles them.

    Attributes:
        limit_bytes: the compiler's default limit of scoped VMEM.
        too_large: blocks that it refused, with the bytes that they need.
    """

    generation: str
    head_dim: int
    variant: Variant
    toolchain: str
    limit_bytes: int
    rows: tuple[Row, ...]
    too_large: tuple[tuple[Blocks, int], ...]

    def row(self, blocks: Blocks) -> Row:
        """The row of some blocks: tabled, or interpolated.

        Between tabled query blocks, and between tabled key/value blocks with the same compute block, cycles are linear;
        elsewhere the nearest row is scaled at equal cycles for each operation.
        """
        query, key, compute = blocks
        if found := self._between_queries(query, (key, compute)):
            return found
        keys = sorted({row.blocks[1] for row in self.rows if row.blocks[2] == compute})
        for shorter, longer in pairwise(keys):
            if shorter < key < longer:
                low, high = (self._between_queries(query, (length, compute)) for length in (shorter, longer))
                if low and high:
                    return _between(low, high, blocks, (key - shorter) / (longer - shorter))
        return self.nearest(blocks).scaled(blocks)

    def _between_queries(self, query: int, pair: tuple[int, int]) -> Row | None:
        line = sorted((row for row in self.rows if row.blocks[1:] == pair), key=lambda row: row.blocks[0])
        for row in line:
            if row.blocks[0] == query:
                return row
        for low, high in pairwise(line):
            if low.blocks[0] < query < high.blocks[0]:
                return _between(low, high, (query, *pair), (query - low.blocks[0]) / (high.blocks[0] - low.blocks[0]))
        return None

    def nearest(self, blocks: Blocks) -> Row:
        """The row whose blocks have the nearest lengths, by ratio."""
        return min(self.rows, key=lambda row: (_distance(row.blocks, blocks), row.blocks))

    def compiled(self) -> tuple[Blocks, ...]:
        """Blocks that fit the scoped VMEM: query blocks by 128 from the shortest to the longest that compiled."""
        lines: dict[tuple[int, int], list[int]] = {}
        for row in self.rows:
            lines.setdefault(row.blocks[1:], []).append(row.blocks[0])
        return tuple(
            (query, *pair)
            for pair, tabled in sorted(lines.items())
            for query in range(min(tabled), max(tabled) + 1, _LANES)
        )


def legal(generation: str, head_dim: int) -> tuple[Blocks, ...]:
    """Blocks that compile in every variant. Raises UnknownName if there is no table."""
    refused = _refused(generation, head_dim)
    compiled = table(generation, head_dim, Variant.PLAIN).compiled()
    return tuple(blocks for blocks in compiled if not any(_covers(blocks, large) for large in refused))


def fits(blocks: Blocks, generation: str, head_dim: int) -> bool:
    """True if the kernel compiles with some blocks, as far as the tables tell. Raises UnknownName if there is none.

    It does not if they are no shorter than some that were refused in any variant, it does if they are no longer than
    some that compiled, and between the two the VMEM of the nearest row decides.
    """
    plain = table(generation, head_dim, Variant.PLAIN)
    if any(_covers(blocks, large) for large in _refused(generation, head_dim)):
        return False
    return any(_covers(row.blocks, blocks) for row in plain.rows) or plain.row(blocks).vmem_bytes <= plain.limit_bytes


def check_blocks(blocks: Blocks) -> None:
    """Raises InvalidValue if the kernel takes no such blocks, whatever the memory."""
    query, key, compute = blocks
    if min(blocks) <= 0 or key % compute or compute % _LANES:
        raise InvalidValue(
            f"blocks {blocks} are not legal: the key/value block {key} must be a multiple of its compute block "
            f"{compute}, this one a multiple of {_LANES}, and the query block {query} positive"
        )


def table(generation: str, head_dim: int, variant: Variant) -> Table:
    """The table of the newest toolchain. Raises UnknownName if there is none.

    A head is padded to whole lanes, so the next larger tabled head size serves one that is not tabled.
    """
    matching = [each for each in _tables() if each.generation == generation and each.variant is variant]
    sizes = sorted({each.head_dim for each in matching if each.head_dim >= head_dim})
    if not sizes:
        known = sorted({(each.generation, each.head_dim) for each in _tables() if each.variant is variant})
        raise UnknownName(
            f"no cycles of {variant} attention with head size {head_dim} on {generation}; there are some for "
            + ", ".join(f"{name} with {size}" for name, size in known)
        )
    return next(each for each in matching if each.head_dim == sizes[0])


@cache
def _tables() -> tuple[Table, ...]:
    document = json.loads(resources.files("tuner.calibration").joinpath("attention_cycles.json").read_text())
    return tuple(  # the newest toolchain comes first in the file
        Table(
            generation=each["generation"],
            head_dim=each["head_dim"],
            variant=Variant(each["variant"]),
            toolchain=each["toolchain"],
            limit_bytes=each["limit_bytes"],
            rows=tuple(
                Row(blocks=(row[0], row[1], row[2]), step=row[3], start=row[4], finish=row[5], vmem_bytes=row[6])
                for row in each["rows"]
            ),
            too_large=tuple(((row[0], row[1], row[2]), row[3]) for row in each["too_large"]),
        )
        for each in document["tables"]
    )


def _refused(generation: str, head_dim: int) -> tuple[Blocks, ...]:
    return tuple(blocks for variant in Variant for blocks, _ in table(generation, head_dim, variant).too_large)


def _between(low: Row, high: Row, blocks: Blocks, share: float) -> Row:
    def mix(first: float, second: float) -> float:
        return first + share * (second - first)

    return Row(
        blocks=blocks,
        step=mix(low.step, high.step),
        start=mix(low.start, high.start),
        finish=mix(low.finish, high.finish),
        vmem_bytes=mix(low.vmem_bytes, high.vmem_bytes),
    )


def _covers(larger: Blocks, smaller: Blocks) -> bool:
    return all(big >= small for big, small in zip(larger, smaller, strict=True))


def _distance(first: Blocks, second: Blocks) -> float:
    return sum(abs(math.log(one / other)) for one, other in zip(first, second, strict=True))
