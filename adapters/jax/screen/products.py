"""Floating-point operations of matrix products and convolutions on one device."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

from adapters.jax.screen.graph import Product, Value, bits


def product(op: Any, operands: list[Value], results: list[Value]) -> Product:
    """Returns the operations of ``dot_general``, ``dot`` or ``convolution``, two for a multiply and an add.

    A product of 8-bit operands counts half and one of 4-bit operands a quarter, because the matrix unit runs them at up
    to twice and four times its bf16 rate; so flops over the bf16 peak is a lower bound for every type.
    """
    scale = min(1.0, max(bits(value.dtype) for value in operands) / 16)
    if op.name == "stablehlo.convolution":
        return Product(flops=2.0 * scale * _convolution(op, operands, results[0]))
    left = operands[0]
    numbers = (
        _dot_numbers(str(op.attributes["dot_dimension_numbers"])) if "dot_dimension_numbers" in op.attributes else {}
    )
    rank = len(left.shape)
    contracted = math.prod(
        left.shape[i] for i in numbers.get("lhs_contracting_dimensions", (rank - 1,) if rank else ())
    )
    batch = math.prod(left.shape[i] for i in numbers.get("lhs_batching_dimensions", ()))
    return Product(flops=2.0 * scale * results[0].elements * contracted, batch=batch, contracted=contracted)


@cache
def _dot_numbers(text: str) -> dict[str, tuple[int, ...]]:
    found = {name: _integers(values) for name, values in re.findall(r"(\w+) = \[([\d, ]*)\]", text)}
    return {"lhs_contracting_dimensions": ()} | found


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", text)))


def _convolution(op: Any, operands: list[Value], result: Value) -> float:
    """Returns multiplies, without those that meet padding or the zeros of a dilated input."""
    image, kernel = operands
    inputs, kernels, outputs = (
        part.split(", ") for part in re.findall(r"\[([^\]]*)\]", str(op.attributes["dimension_numbers"]))
    )
    rank = len(inputs) - 2
    strides, spread, reach = (
        _array(op, name, (1,) * rank) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    padding = _array(op, "padding", (0, 0) * rank)
    taps = 1
    for axis in range(rank):
        size = image.shape[inputs.index(str(axis))]
        window = kernel.shape[kernels.index(str(axis))]
        out = result.shape[outputs.index(str(axis))]
        # Padding splat over all dimensions is stored once.
        low = padding[2 * axis] if len(padding) == 2 * rank else padding[0]
        taps *= sum(
            1
            for position in range(out)
            for tap in range(window)
            if (at := position * strides[axis] + tap * reach[axis] - low) >= 0
            and at % spread[axis] == 0
            and at // spread[axis] < size
        )
    positions = math.prod(result.shape[outputs.index(str(axis))] for axis in range(rank))
    return float(taps * result.elements // positions * kernel.shape[kernels.index("i")])


def _array(op: Any, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    if name not in op.attributes:
        return default
    text = str(op.attributes[name])
    values = _integers(text.split(":", 1)[0] if text.startswith("dense") else text.split(":", 1)[-1])
    return values * len(default) if len(values) == 1 else values
