"""Builds a `Graph` operation by operation, in the form that `graph` promises.

Equal operations are one operation, and an operation whose operands do not change in a loop stands before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any

from adapters.jax.screen.graph import Block, Op, Value
from adapters.jax.screen.meshes import Sharding

Type = tuple[tuple[int, ...], str, Sharding]
"""Local shape, MLIR element type and sharding of a result."""


class Nothing(Enum):
    """The detail of an operation that does nothing, such as a collective over groups of one device."""

    NOTHING = "nothing"


NOTHING = Nothing.NOTHING


class Builder:
    """The blocks that are open, innermost last, and the operations so far.

    Attributes:
        floor: the least depth that an operation may move out to; above 0 inside of a branch, which might not run.
    """

    def __init__(self) -> None:
        self.blocks = [Block(depth=0)]
        self.floor = 0
        self._seen: dict[Hashable, list[Value]] = {}

    def add(
        self,
        kind: str,
        operands: list[Value],
        types: Sequence[Type],
        what: Hashable,
        *,
        detail: Callable[[list[Value]], Any] | None = None,
        side_effect: bool = False,
    ) -> list[Value]:
        """Adds an operation, unless an equal one is there, and returns its results.

        Args:
            kind: MLIR name without its dialect.
            operands: what it reads.
            types: of its results.
            what: tells it from other operations of its kind on the same operands.
            detail: makes `Op.detail` from the results; `NOTHING` passes the operands on.
            side_effect: whether it must stay where it is, as often as it is written.
        """
        depth = len(self.blocks) - 1 if side_effect else max([self.floor, *(value.depth for value in operands)])
        key = (kind, id(self.blocks[depth]), tuple(map(id, operands)), what)
        if not side_effect and key in self._seen:
            return self._seen[key]
        results = [Value(shape, dtype, depth, sharding) for shape, dtype, sharding in types]
        made = Op(kind, operands, results, has_side_effect=side_effect)
        if detail is not None:
            made.detail = detail(results)
            if made.detail is NOTHING:
                return operands if len(operands) == len(results) else results
        for result in results:
            result.producer = made
        self.blocks[depth].ops.append(made)
        self._seen[key] = results
        return results
