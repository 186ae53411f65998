"""Bytes that an operation moves through HBM and through on-chip vector memory.

Operands are read once and the result is written once, in the memory space that each has, with what a plain sum gets
wrong set right: a slice of a stacked operand (the weights of one layer inside of a scan) counts as the slice, an update
in place counts as the update, and what a fusion only hands through counts as nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from adapters.jax.hlo.shapes import HBM, VMEM, Shape
from adapters.jax.hlo.text import Computation, Instruction, Module

Traffic = Counter[int]
"""Bytes by memory space."""

_ALIASES = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier"})
_SLICES = frozenset({"slice", "dynamic-slice", "gather"})
_HANDED_ON = frozenset(
    {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "custom-call", "parameter"}
)


def traffic(module: Module, computation: Computation, instruction: Instruction) -> tuple[int, int]:
    """Returns (HBM bytes, VMEM bytes) read and written by one execution of an instruction."""
    total: Traffic = Counter()
    if instruction.opcode == "fusion" and (called := instruction.called("calls")) is not None:
        inner = module[called]
        for number, parameter in inner.parameters.items():
            source = computation.instructions[instruction.operands[number]]
            read = _read(module, inner, parameter.name, _size(source))
            total[_space(source)] += read
        total.update(_written(module, inner, inner.root, instruction.shapes))
    elif instruction.opcode == "dynamic-update-slice":
        update = computation.instructions[instruction.operands[1]]
        total[_space(update)] += _size(update)
        total[_space(instruction)] += _size(update)
    elif instruction.opcode in _SLICES:
        total[_space(computation.instructions[instruction.operands[0]])] += _size(instruction)
        total[_space(instruction)] += _size(instruction)
    else:
        for name in instruction.operands:
            total += _bytes(computation.instructions[name].shapes)
        total += _bytes(instruction.shapes)
    return total[HBM], total[VMEM]


def copied(computation: Computation, start: str, done: Instruction) -> tuple[int, int]:
    """Returns (HBM bytes, VMEM bytes) that a copy beside the schedule reads and writes.

    Its ``-start`` returns buffers of both sides, so what moves is the size of the ``-done``: it is read where the
    source is and written where the result is.
    """
    source = computation.instructions[start]
    while source.opcode.endswith(("-start", "-update")):
        # A call that got ready without operands is given them by its update.
        source = computation.instructions[source.operands[-1 if source.opcode == "call-update" else 0]]
    total: Traffic = Counter()
    total[_space(source)] += _size(done)
    total[_space(done)] += _size(done)
    return total[HBM], total[VMEM]


def result_bytes(instruction: Instruction) -> int:
    """Returns the bytes of an instruction's result, scalars left out."""
    return _size(instruction)


def _read(module: Module, computation: Computation, name: str, whole: int) -> int:
    """Bytes that a fused computation reads of a parameter of `whole` bytes."""
    return min(whole, sum(_reads(module, computation, name, whole)))


def _reads(module: Module, computation: Computation, name: str, whole: int) -> Iterator[int]:
    for user in computation.users(name):
        if user.opcode in _SLICES and user.operands[0] == name:
            yield _size(user)
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == name:
            yield 0  # updated in place
        elif user.opcode in _ALIASES:
            yield from _reads(module, computation, user.name, whole)
        elif user.opcode in _HANDED_ON:
            yield 0  # the payload of a collective under way, which is not this operation's traffic
        elif user.opcode == "fusion" and (called := user.called("calls")) is not None:
            inner = module[called]
            for number, operand in enumerate(user.operands):
                if operand == name:
                    yield _read(module, inner, inner.parameters[number].name, whole)
        else:
            yield whole


def _written(module: Module, computation: Computation, root: Instruction, shapes: tuple[Shape, ...]) -> Traffic:
    if root.opcode == "tuple":
        total: Traffic = Counter()
        position = 0
        for name in root.operands:
            element = computation.instructions[name]
            total += _written(module, computation, element, shapes[position : position + len(element.shapes)])
            position += len(element.shapes)
        return total
    if root.opcode == "bitcast":
        return _written(module, computation, computation.instructions[root.operands[0]], shapes)
    if root.opcode == "dynamic-update-slice":
        update = _size(computation.instructions[root.operands[1]])
        return Counter({shapes[0].space: update}) if shapes else Counter()
    if root.opcode in _HANDED_ON or (root.opcode == "get-tuple-element" and _from_parameter(computation, root)):
        return Counter()
    if root.opcode == "fusion" and (called := root.called("calls")) is not None:
        return _written(module, module[called], module[called].root, shapes)
    return _bytes(shapes)


def _from_parameter(computation: Computation, instruction: Instruction) -> bool:
    return computation.instructions[instruction.operands[0]].opcode == "parameter"


def _bytes(shapes: tuple[Shape, ...]) -> Traffic:
    total: Traffic = Counter()
    for shape in shapes:
        if not shape.scalar:
            total[shape.space] += shape.bytes
    return total


def _size(instruction: Instruction) -> int:
    return sum(shape.bytes for shape in instruction.shapes if not shape.scalar)


def _space(instruction: Instruction) -> int:
    return instruction.shapes[0].space if instruction.shapes else HBM
