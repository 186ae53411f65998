"""Trip counts of while loops.

Scheduled TPU text has no known trip count, so it is computed as the loop would: the counter's start from the loop's
initial tuple, its step from the body's result, its limit from the condition. All three matter: the compiler unrolls
some loops and then counts by two, and passes constants through the tuples of outer loops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.jax.hlo.text import Computation, Instruction, Module

_INTEGER = re.compile(r"-?\d+$")
_SAME_VALUE = frozenset({"copy", "bitcast", "convert", "reshape", "broadcast", "copy-done"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A computation in execution and where its parameters come from; `loop` is set in the body and condition of one."""

    computation: Computation
    caller: Frame | None = None
    call: Instruction | None = None
    loop: bool = False


def trip_count(module: Module, loop: Instruction, frame: Frame) -> int | None:
    """Returns how often the body of `loop`, an instruction of `frame`, runs; None if it depends on data."""
    condition, body = loop.called("condition"), loop.called("body")
    assert condition is not None
    assert body is not None
    test = _comparison(module, Frame(computation=module[condition], caller=frame, call=loop, loop=True))
    if test is None:
        return None
    index, direction, limit = test
    initial = _element(module, frame, loop.operands[0], index)
    step = _step(module, Frame(computation=module[body], caller=frame, call=loop, loop=True), index)
    if initial is None or step is None or step == 0:
        return None
    return _count(initial, step, direction, limit)


def _count(initial: int, step: int, direction: str, limit: int) -> int | None:
    if direction == "NE":
        return (limit - initial) // step if (limit - initial) % step == 0 and (limit - initial) // step >= 0 else None
    if direction in ("LT", "LE"):
        distance = limit - initial + (direction == "LE")
    elif direction in ("GT", "GE"):
        distance, step = initial - limit + (direction == "GE"), -step
    else:
        return None
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def _comparison(module: Module, frame: Frame) -> tuple[int, str, int] | None:
    """Tuple index of the counter, direction and limit of a condition."""
    root = frame.computation.root
    while root.opcode == "fusion":
        called = root.called("calls")
        assert called is not None
        frame = Frame(computation=module[called], caller=frame, call=root)
        root = frame.computation.root
    direction = root.attribute(r"direction=(\w+)")
    if root.opcode != "compare" or direction is None:
        return None
    left, right = root.operands
    counter, limit = _carried(frame, left), _value(module, frame, right)
    if counter is None or limit is None:
        counter, limit = _carried(frame, right), _value(module, frame, left)
        direction = direction.translate(str.maketrans("LG", "GL"))
    return None if counter is None or limit is None else (counter, direction, limit)


def _carried(frame: Frame, name: str) -> int | None:
    """Tuple index of a loop's carried value that `name` is a plain copy of."""
    instruction = frame.computation.instructions[name]
    if instruction.opcode in _SAME_VALUE:
        return _carried(frame, instruction.operands[0])
    if instruction.opcode == "parameter" and frame.call is not None and frame.call.opcode == "fusion":
        assert frame.caller is not None
        return _carried(frame.caller, frame.call.operands[int(instruction.arguments)])
    if instruction.opcode == "get-tuple-element" and frame.loop:
        source = frame.computation.instructions[instruction.operands[0]]
        return _index(instruction) if source.opcode == "parameter" else None
    return None


def _step(module: Module, body: Frame, index: int) -> int | None:
    root = body.computation.root
    if root.opcode != "tuple":
        return None
    return _increment(module, body, root.operands[index], index)


def _invariant(body: Frame, index: int) -> bool:
    """True if a loop hands the carried value on as it is."""
    root = body.computation.root
    return root.opcode == "tuple" and _carried(body, root.operands[index]) == index


def _increment(module: Module, frame: Frame, name: str, index: int) -> int | None:
    """What is added to the carried value `index` to give `name`."""
    if _carried(frame, name) == index:
        return 0
    instruction = frame.computation.instructions[name]
    if instruction.opcode in _SAME_VALUE:
        return _increment(module, frame, instruction.operands[0], index)
    if instruction.opcode == "fusion" and (called := instruction.called("calls")) is not None:
        inner = Frame(computation=module[called], caller=frame, call=instruction)
        root = inner.computation.root
        return None if root.opcode == "tuple" else _increment(module, inner, root.name, index)
    if instruction.opcode in ("add", "subtract"):
        left, right = instruction.operands
        sign = 1 if instruction.opcode == "add" else -1
        base, amount = _increment(module, frame, left, index), _value(module, frame, right)
        if (base is None or amount is None) and sign == 1:
            base, amount = _increment(module, frame, right, index), _value(module, frame, left)
        return None if base is None or amount is None else base + sign * amount
    return None


def _value(module: Module, frame: Frame, name: str) -> int | None:
    """The integer that `name` is whenever the frame runs, or None."""
    instruction = frame.computation.instructions[name]
    match instruction.opcode:
        case "constant":
            return int(instruction.arguments) if _INTEGER.match(instruction.arguments) else None
        case "get-tuple-element":
            return _element(module, frame, instruction.operands[0], _index(instruction))
        case "parameter" if frame.caller is not None and frame.call is not None and not frame.loop:
            return _value(module, frame.caller, frame.call.operands[int(instruction.arguments)])
        case "add" | "subtract" | "multiply":
            left, right = (_value(module, frame, operand) for operand in instruction.operands)
            if left is None or right is None:
                return None
            return {"add": left + right, "subtract": left - right, "multiply": left * right}[instruction.opcode]
        case opcode if opcode in _SAME_VALUE and len(instruction.operands) == 1:
            return _value(module, frame, instruction.operands[0])
        case "copy-start":
            return _value(module, frame, instruction.operands[0])
        case _:
            return None


def _element(module: Module, frame: Frame, name: str, index: int) -> int | None:
    """The integer at `index` of a tuple, if it is one whenever the frame runs."""
    instruction = frame.computation.instructions[name]
    match instruction.opcode:
        case "tuple":
            return _value(module, frame, instruction.operands[index])
        case "parameter" if frame.loop and frame.caller is not None and frame.call is not None:
            loop, body = frame.call, frame.call.called("body")
            assert body is not None
            inside = Frame(computation=module[body], caller=frame.caller, call=loop, loop=True)
            if not _invariant(inside, index):
                return None
            return _element(module, frame.caller, loop.operands[0], index)
        case "while":
            body = instruction.called("body")
            assert body is not None
            inside = Frame(computation=module[body], caller=frame, call=instruction, loop=True)
            if not _invariant(inside, index):
                return None
            return _element(module, frame, instruction.operands[0], index)
        case _:
            return None


def _index(instruction: Instruction) -> int:
    index = instruction.attribute(r"\bindex=(\d+)")
    assert index is not None
    return int(index)
