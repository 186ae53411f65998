"""Attention, recognised by its shape: a product, an exponential of it with its sums, and a product with the weights.

The screen's form of a step writes attention with plain products, which say nothing of a kernel. What stands between the
two products never reaches HBM when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.jax.screen.graph import Block, Op, Product, Value
from tuner.program.program import AttentionKernel

# Steps from weights back to scores that keep one element for each score.
_POINTWISE = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clamp", "negate", "select", "convert"),
        *("exponential", "exponential_minus_one", "tanh", "logistic", "reshape", "transpose"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention in a block.

    Attributes:
        scores: the product of queries and keys.
        output: the product of weights and values.
        kernel: its sizes, blocks unknown (0).
        inside: values that live only between the two.
    """

    scores: Op
    output: Op
    kernel: AttentionKernel
    inside: frozenset[Value]

    @property
    def flops(self) -> float:
        """Of both products."""
        return float(sum(op.detail.flops for op in (self.scores, self.output)))


def attentions(block: Block, readers: Mapping[Value, list[Op]]) -> list[Attention]:
    """Returns every attention whose two products stand in this block.

    `readers` are who reads each value (`traffic.uses`).
    """
    mine = set(map(id, block.ops))
    found = []
    for op in block.ops:
        if op.kind != "dot_general":
            continue
        for weights in op.operands:
            scores = _scores(weights, readers)
            if scores is None or id(scores) not in mine:
                continue
            inside = _between(scores, weights)
            kernel = _kernel(scores, op, inside)
            if kernel is not None:
                found.append(Attention(scores=scores, output=op, kernel=kernel, inside=frozenset(inside)))
                break
    return found


def _scores(weights: Value, readers: Mapping[Value, list[Op]]) -> Op | None:
    """Returns the product that `weights` are a summed exponential of, element by element.

    The sum tells a softmax from an activation between two layers.
    """
    stack, seen = [(weights, False)], set()
    while stack:
        value, exponential = stack.pop()
        op = value.producer
        if op is None or (value, exponential) in seen:
            continue
        seen.add((value, exponential))
        if op.kind == "dot_general" and exponential and value.elements == weights.elements:
            return op
        if op.kind in _POINTWISE:
            exponential = exponential or (op.kind == "exponential" and _is_summed(value, readers))
            stack += [(operand, exponential) for operand in op.operands if operand.elements == weights.elements]
    return None


def _is_summed(value: Value, readers: Mapping[Value, list[Op]]) -> bool:
    return any(
        op.kind == "reduce" or (op.kind == "convert" and _is_summed(op.results[0], readers))
        for op in readers.get(value, ())
    )


def _kernel(scores: Op, output: Op, inside: set[Value]) -> AttentionKernel | None:
    first, second = scores.detail, output.detail
    assert isinstance(first, Product)
    assert isinstance(second, Product)
    elements, heads, keys = scores.results[0].elements, first.batch, second.contracted
    if heads != second.batch or elements % (heads * keys):
        return None
    return AttentionKernel(
        name="attention",
        heads=heads,
        q_len=elements // (heads * keys),
        kv_len=keys,
        head_dim=first.contracted,
        blocks=(0, 0, 0),
        masked=any(value.producer is not None and value.producer.kind == "select" for value in inside),
    )


def _between(scores: Op, weights: Value) -> set[Value]:
    """Returns the values that come from the scores and lead to the weights."""
    from_scores: dict[Value, bool] = {scores.results[0]: True}

    stack = [weights]
    while stack:
        value = stack[-1]
        if value in from_scores:
            stack.pop()
            continue
        operands = value.producer.operands if value.producer is not None else []
        if value.producer is not None and value.producer.kind in ("while", "case"):
            operands = []
        unknown = [operand for operand in operands if operand not in from_scores]
        if unknown:
            stack += unknown
            continue
        stack.pop()
        from_scores[value] = any(from_scores[operand] for operand in operands)
    return {value for value, descends in from_scores.items() if descends}
