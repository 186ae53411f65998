"""A small graph of the per-device program, freed from MLIR, on which every fact of the screen is counted.

Values carry the shape that one device holds. A graph is built in a form that already has what a compiler would save for
certain: calls are inlined, equal operations are one operation, and an operation whose operands do not change in a loop
stands before the loop (see `reading`); `prune` takes out what no result needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from adapters.jax.screen.meshes import Sharding


@dataclass(slots=True, eq=False)
class Value:
    """A tensor as one device holds it.

    Attributes:
        shape: local shape.
        dtype: MLIR name of the element type, for example ``bf16`` or ``i32``.
        depth: loops around its definition; the arguments of the program have 0.
        sharding: mesh axes of each dimension, as far as they are not manual.
        producer: the operation that makes it; None for arguments of the program and of loops.
        constant: its number, if it is a constant scalar of integers.
    """

    shape: tuple[int, ...]
    dtype: str
    depth: int = 0
    sharding: Sharding = ()
    producer: Op | None = None
    constant: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements on one device."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes on one device, without tile padding."""
        return -(-self.elements * bits(self.dtype) // 8)


@dataclass(slots=True, eq=False)
class Op:
    """An operation.

    Attributes:
        kind: MLIR name without the dialect ``stablehlo`` or ``chlo``, for example ``dot_general``; Shardy's collectives
            have the kind of their StableHLO equals.
        detail: what the reader found out about it: `Product`, a `tuner` collective, `Repeat` or `Branch`.
    """

    kind: str
    operands: list[Value]
    results: list[Value]
    detail: Any = None
    has_side_effect: bool = False


@dataclass(slots=True, eq=False)
class Block:
    """Operations in order, inside of `depth` loops."""

    depth: int
    ops: list[Op] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product or convolution.

    Attributes:
        flops: floating-point operations on one device, two for each multiply and add.
        batch: product of the batching dimensions.
        contracted: product of the contracted dimensions.
    """

    flops: float
    batch: int = 1
    contracted: int = 1


@dataclass(slots=True, eq=False)
class Repeat:
    """Body of a loop. `carried[i]` is the body's argument and `yielded[i]` what it becomes.

    Values that the body hands on unchanged are not listed. `trips` is None where the condition does not tell.
    """

    body: Block
    carried: list[Value]
    yielded: list[Value]
    condition: Value
    trips: int | None


@dataclass(slots=True, eq=False)
class Branch:
    """Alternatives, of which one runs, each with the values that it yields."""

    blocks: list[Block]
    yielded: list[list[Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A program.

    Attributes:
        arguments: one value for each argument of the lowered function; unused ones have been dropped by JAX.
        donated: whether each argument's buffer may be reused by a result.
        body: the operations.
        returns: one value for each result.
    """

    arguments: tuple[Value, ...]
    donated: tuple[bool, ...]
    body: Block
    returns: tuple[Value, ...]


@cache
def bits(dtype: str) -> int:
    """Returns the bits of an element in memory; a predicate takes a byte, a complex number twice its part."""
    if dtype == "i1":
        return 8
    if dtype.startswith("complex"):
        return 2 * bits(dtype[len("complex<") : -1])
    width = re.search(r"\d+", dtype)
    return int(width[0]) if width else 0


def prune(graph: Graph) -> None:
    """Removes every operation, and every loop-carried value, that no result needs."""
    _prune(graph.body, set(graph.returns))


def _prune(block: Block, live: set[Value]) -> None:
    kept = []
    for op in reversed(block.ops):
        if not (op.has_side_effect or any(result in live for result in op.results)):
            continue
        match op.detail:
            case Repeat() as loop:
                _prune_loop(op, loop, live)
            case Branch() as branch:
                for inner, yielded in zip(branch.blocks, branch.yielded, strict=True):
                    live.update(value for value, result in zip(yielded, op.results, strict=True) if result in live)
                    _prune(inner, live)
        live.update(op.operands)
        kept.append(op)
    block.ops = kept[::-1]


def _prune_loop(op: Op, loop: Repeat, live: set[Value]) -> None:
    needed = {index for index, result in enumerate(op.results) if result in live}
    everything = loop.body.ops
    while True:
        loop.body.ops = everything
        inside = live | {loop.yielded[index] for index in needed} | {loop.condition}
        _prune(loop.body, inside)
        more = needed | {index for index, value in enumerate(loop.carried) if value in inside}
        if more == needed:
            break
        needed = more
    live |= inside
    order = sorted(needed)
    op.operands, op.results = [op.operands[i] for i in order], [op.results[i] for i in order]
    loop.carried, loop.yielded = [loop.carried[i] for i in order], [loop.yielded[i] for i in order]


def walk(block: Block) -> Iterator[tuple[Op, Block]]:
    """Yields every operation, those of loops and branches included, with the block that holds it."""
    for op in block.ops:
        yield op, block
        for inner in inner_blocks(op):
            yield from walk(inner)


def inner_blocks(op: Op) -> Iterable[Block]:
    """Returns the blocks inside an operation."""
    match op.detail:
        case Repeat() as loop:
            return (loop.body,)
        case Branch() as branch:
            return branch.blocks
        case _:
            return ()
