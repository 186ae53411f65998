"""HLO text into modules, computations and instructions.

Two traps of the text: an instruction may span lines (a Pallas kernel's metadata holds raw newlines, and its closing
``}}`` stands in the first column), and attributes hold JSON and strings with any bracket in them. So an instruction
ends where its brackets balance outside of strings, and a computation ends only at a line that is exactly ``}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adapters.jax.hlo.shapes import Shape, shapes
from tuner.errors import InvalidValue

_NAME = r"[\w.\-<>$]+"
_INSTRUCTION = re.compile(rf"\s+(ROOT )?%?({_NAME}) = ")
# What runs beside the schedule, on a sparse core of v7x, says so where it ends.
_CLOSED = re.compile(r'\}(?:, execution_thread="\w+")?\s*')
_COMPUTATION = re.compile(rf"(ENTRY )?%?({_NAME}) \(.*\) -> .* \{{\s*$")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPERAND = re.compile(rf"%({_NAME})")
_CALLED = re.compile(rf"(?:^|[,\s])(calls|to_apply|body|condition|true_computation|false_computation)=%?({_NAME})")
_BRANCHES = re.compile(r"(?:^|[,\s])(?:branch_computations|called_computations)=\{([^}]*)\}")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        name: without ``%``.
        type: the result's type, as written.
        opcode: for example ``fusion``.
        arguments: the text between the parentheses.
        operands: names of the operands in it.
        attributes: the text after them.
        root: True if it is its computation's result.
    """

    name: str
    type: str
    opcode: str
    arguments: str
    operands: tuple[str, ...]
    attributes: str
    root: bool = False

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Arrays of the result, flattened."""
        return shapes(self.type)

    def called(self, role: str) -> str | None:
        """Returns the computation called as ``calls``, ``to_apply``, ``body`` or ``condition``, or None."""
        for match in _CALLED.finditer(self.attributes):
            if match[1] == role:
                return match[2]
        return None

    @property
    def branches(self) -> tuple[str, ...]:
        """Computations of a conditional."""
        listed = _BRANCHES.search(self.attributes)
        if listed is not None:
            return tuple(name.strip().lstrip("%") for name in listed[1].split(","))
        pair = (self.called("true_computation"), self.called("false_computation"))
        return tuple(name for name in pair if name is not None)

    def attribute(self, pattern: str) -> str | None:
        """Returns the first group of a regular expression in the attributes, or None."""
        match = re.search(pattern, self.attributes)
        return None if match is None else match[1]

    @property
    def config(self) -> dict[str, Any]:
        """What the compiler decided for the instruction; empty if it says nothing."""
        return self.json("backend_config=")

    def json(self, key: str) -> dict[str, Any]:
        """Returns the JSON object that follows `key` in the attributes; empty if there is none."""
        position = self.attributes.find(key)
        if position < 0 or self.attributes[position + len(key)] != "{":
            return {}
        # Strings in it hold brackets and newlines, so only a JSON reader finds its end.
        value, _ = json.JSONDecoder(strict=False).raw_decode(self.attributes, position + len(key))
        return dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """Instructions in the order of the schedule, by name."""

    name: str
    instructions: dict[str, Instruction]

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the computation's."""
        for instruction in reversed(self.instructions.values()):
            if instruction.root:
                return instruction
        raise InvalidValue(f"HLO computation {self.name!r} has no ROOT instruction")

    @property
    def parameters(self) -> dict[int, Instruction]:
        """Parameters by their number."""
        return {int(i.arguments): i for i in self.instructions.values() if i.opcode == "parameter"}

    def users(self, name: str) -> list[Instruction]:
        """Returns the instructions that take a value as an operand."""
        return [instruction for instruction in self.instructions.values() if name in instruction.operands]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A compiled module. `partitions` is what its header says; more devices mean replicas of it (other slices)."""

    computations: dict[str, Computation]
    entry: str
    partitions: int

    def __getitem__(self, name: str) -> Computation:
        return self.computations[name]


def parse(text: str) -> Module:
    """Reads the text of a compiled module. Raises InvalidValue if it has no entry or was not scheduled."""
    header = text.split("\n", 1)[0]
    if "is_scheduled=true" not in header:
        raise InvalidValue(f"not the text of a scheduled HLO module: it starts with {header[:80]!r}")
    partitions = re.search(r"\bnum_partitions=(\d+)", header)
    computations: dict[str, Computation] = {}
    current: dict[str, Instruction] | None = None
    entry = ""
    for line in _logical_lines(text):
        if _CLOSED.fullmatch(line):
            current = None
        elif current is not None:
            instruction = _instruction(line)
            if instruction is not None:
                current[instruction.name] = instruction
        elif (opening := _COMPUTATION.match(line)) is not None:
            current = {}
            computations[opening[2]] = Computation(name=opening[2], instructions=current)
            entry = opening[2] if opening[1] else entry
    if not entry:
        raise InvalidValue(f"HLO text of {len(text)} characters has no ENTRY computation")
    return Module(computations=computations, entry=entry, partitions=int(partitions[1]) if partitions else 1)


def balanced_end(text: str, start: int) -> int:
    """Returns the index after the bracket that closes the one at `start`. Raises InvalidValue if none does."""
    opening = text[start]
    closing, depth, position = _CLOSING[opening], 0, start
    while position < len(text):
        character = text[position]
        if character == '"':
            string = _STRING.match(text, position)
            position = len(text) if string is None else string.end()
            continue
        depth += (character == opening) - (character == closing)
        position += 1
        if depth == 0:
            return position
    raise InvalidValue(f"HLO text has an open {opening!r} in {text[start : start + 60]!r}")


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in text.split("\n"):
        if pending:
            pending += "\n" + line
        elif _INSTRUCTION.match(line):
            pending = line
        else:
            yield line
            continue
        if _balanced(pending):
            yield pending
            pending = ""
    if pending:
        yield pending


def _balanced(text: str) -> bool:
    # Nearly every line balances with its strings counted in; strip them only where that fails.
    if all(text.count(opening) == text.count(closing) for opening, closing in _CLOSING.items()):
        return True
    bare = _STRING.sub("", text)
    return '"' not in bare and all(bare.count(opening) == bare.count(closing) for opening, closing in _CLOSING.items())


def _instruction(line: str) -> Instruction | None:
    start = _INSTRUCTION.match(line)
    if start is None:
        return None
    position = start.end()
    type_end = balanced_end(line, position) if line[position] == "(" else line.index(" ", position)
    opcode = _OPCODE.match(line, type_end)
    if opcode is None:
        return None
    end = balanced_end(line, opcode.end() - 1)
    arguments = line[opcode.end() : end - 1]
    return Instruction(
        name=start[2],
        type=line[position:type_end],
        opcode=opcode[1],
        arguments=arguments,
        operands=() if opcode[1] == "constant" else tuple(_OPERAND.findall(arguments)),
        attributes=line[end:],
        root=start[1] is not None,
    )
