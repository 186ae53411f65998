"""Floating-point operations of matrix products, as XLA's cost analysis counts them: two for each multiply-add."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from adapters.jax.hlo.shapes import Shape
from adapters.jax.hlo.text import Computation, Instruction, Module

PRODUCTS = frozenset({"convolution", "dot"})


def flops(module: Module, computation: Computation) -> float:
    """Returns the operations of every product in a computation and the fusions inside of it."""
    return sum(
        product_flops(instruction, [within.instructions[name].shapes[0] for name in instruction.operands[:2]])
        for within, instruction in products(module, computation)
    )


def products(module: Module, computation: Computation) -> Iterator[tuple[Computation, Instruction]]:
    """Yields every product of a computation and of the fusions inside of it."""
    for instruction in computation.instructions.values():
        if instruction.opcode in PRODUCTS:
            yield computation, instruction
        elif instruction.opcode == "fusion" and (called := instruction.called("calls")) is not None:
            yield from products(module, module[called])


def product_flops(instruction: Instruction, operands: list[Shape]) -> float:
    """Returns the operations of one dot or convolution, positions that only multiply padding left out."""
    if instruction.opcode == "dot":
        contracted = _numbers(instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}") or "")
        depth = 1
        for dimension in contracted:
            depth *= operands[0].dimensions[dimension]
        return 2.0 * instruction.shapes[0].elements * depth
    return _convolution(instruction, *operands)


def _convolution(instruction: Instruction, image: Shape, kernel: Shape) -> float:
    """With ``dim_labels`` of image, kernel and result such as ``bf0_0oi->b0f``: b batch, f and i features, o outputs.

    The compiler writes batch dimensions of a product as spatial ones with padding, where most positions of the window
    fall on the padding, so valid positions are counted one by one.
    """
    labels = instruction.attribute(r"dim_labels=(\S+?)(?:,|$)") or ""
    image_labels, rest = labels.split("_", 1)
    kernel_labels, result_labels = rest.split("->")
    result = dict(zip(result_labels, instruction.shapes[0].dimensions, strict=True))
    kernel_sizes = dict(zip(kernel_labels, kernel.dimensions, strict=True))
    image_sizes = dict(zip(image_labels, image.dimensions, strict=True))
    window = _window(instruction, sum(label.isdigit() for label in kernel_labels))
    batch_groups = int(instruction.attribute(r"\bbatch_group_count=(\d+)") or 1)
    total = 2.0 * result["b"] * result["f"] * kernel_sizes["i"]
    if batch_groups > 1:  # each output channel sees its own share of the batch
        total = total / batch_groups * image_sizes["b"] / max(result["b"], 1)
    for axis, (stride, low, base_dilation, window_dilation) in enumerate(window):
        label = str(axis)
        total *= _valid_positions(
            result[label], kernel_sizes[label], image_sizes[label], stride, low, base_dilation, window_dilation
        )
    return total


def _valid_positions(
    outputs: int, taps: int, inputs: int, stride: int, low: int, base_dilation: int, window_dilation: int
) -> int:
    reach = (inputs - 1) * base_dilation
    valid = 0
    for output in range(outputs):
        start = output * stride - low
        for tap in range(taps):
            position = start + tap * window_dilation
            valid += 0 <= position <= reach and position % base_dilation == 0
    return valid


def _window(instruction: Instruction, spatial: int) -> list[tuple[int, int, int, int]]:
    """(stride, low padding, base dilation, window dilation) of every spatial dimension."""
    text = instruction.attribute(r"\bwindow=\{([^}]*)\}") or ""
    fields = dict(re.findall(r"(\w+)=(\S+)", text))

    def numbers(name: str, default: int) -> list[int]:
        listed = [int(part.split("_")[0]) for part in fields.get(name, "").split("x") if part]
        return [value for value, _ in zip_longest(listed, range(spatial), fillvalue=default)][:spatial]

    return list(
        zip(numbers("stride", 1), numbers("pad", 0), numbers("lhs_dilate", 1), numbers("rhs_dilate", 1), strict=True)
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)
