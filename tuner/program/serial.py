"""Programs as strict JSON, for the compile cache and for plans that carry their evidence.

Each node of the schedule is an object whose ``node`` says what it is; fields at their default are left out. Readers
ignore fields that they do not know and refuse a newer `SCHEMA` with its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from tuner.errors import InvalidValue
from tuner.program.program import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    Compute,
    ComputeKind,
    Done,
    Loop,
    Memory,
    Node,
    Program,
    Start,
)

SCHEMA = 1
"""Raised when a reader of the old form would misread the new one."""


def to_json(program: Program) -> dict[str, Any]:
    """Returns a JSON document of plain dicts, lists, strings and numbers. Raises InvalidValue on an unknown node."""
    return {
        "schema": SCHEMA,
        "devices": program.devices,
        "memory": None if program.memory is None else _plain(program.memory),
        "schedule": [_node_to_json(node) for node in program.schedule],
    }


def from_json(document: Mapping[str, Any]) -> Program:
    """Reads what `to_json` wrote. Raises InvalidValue if the document is of a newer schema or malformed."""
    schema = document.get("schema")
    if schema != SCHEMA:
        raise InvalidValue(f"a program of schema {schema!r}; this version reads schema {SCHEMA}")
    try:
        memory = document["memory"]
        return Program(
            devices=int(document["devices"]),
            schedule=tuple(_node_from_json(node) for node in document["schedule"]),
            memory=None if memory is None else Memory(**_known(Memory, memory)),
        )
    except InvalidValue:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValue(f"a malformed program document: {error!r}") from error


def _plain(value: Any) -> dict[str, Any]:
    """Fields of a flat dataclass that are not at their default."""
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if field.default is MISSING or getattr(value, field.name) != field.default
    }


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in document.items() if key in names}


def _node_to_json(node: Node) -> dict[str, Any]:
    match node:
        case Compute():
            document = {"node": "compute", **_plain(node)}
            if node.kernel is not None:
                document["kernel"] = _plain(node.kernel) | {"blocks": list(node.kernel.blocks)}
            return document
        case Collective():
            return {"node": "collective", **_collective_to_json(node)}
        case Start():
            return {"node": "start", **_collective_to_json(node.collective)}
        case Done():
            return {"node": "done", "name": node.name}
        case Loop():
            body = [_node_to_json(child) for child in node.body]
            return {"node": "loop", "name": node.name, "trips": node.trips, "body": body}
        case _:
            raise InvalidValue(f"cannot write a {type(node).__name__} as a node of a program")


def _collective_to_json(collective: Collective) -> dict[str, Any]:
    document = _plain(collective)
    for key in ("groups", "pairs"):
        if key in document:
            document[key] = [list(members) for members in document[key]]
    return document


def _node_from_json(document: Mapping[str, Any]) -> Node:
    match document["node"]:
        case "compute":
            values = _known(Compute, document)
            if "kernel" in values:
                kernel = _known(AttentionKernel, values["kernel"])
                values["kernel"] = AttentionKernel(**kernel | {"blocks": tuple(kernel["blocks"])})
            return Compute(**values | {"kind": ComputeKind(values["kind"])})
        case "collective":
            return _collective_from_json(document)
        case "start":
            return Start(collective=_collective_from_json(document))
        case "done":
            return Done(name=document["name"])
        case "loop":
            body = tuple(_node_from_json(child) for child in document["body"])
            return Loop(name=document["name"], trips=document["trips"], body=body)
        case unknown:
            raise InvalidValue(f"a program document has an unknown node {unknown!r}")


def _collective_from_json(document: Mapping[str, Any]) -> Collective:
    values = _known(Collective, document)
    for key in ("groups", "pairs"):
        if key in values:
            values[key] = tuple(tuple(members) for members in values[key])
    return Collective(**values | {"kind": CollectiveKind(values["kind"])})
