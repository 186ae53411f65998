from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.canonical import canonical_json
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
    Program,
    Start,
)
from tuner.program.serial import SCHEMA, from_json, to_json

sizes = st.integers(0, 2**40)
names = st.text(max_size=8)

kernels = st.builds(
    AttentionKernel,
    name=names,
    heads=sizes,
    q_len=sizes,
    kv_len=sizes,
    head_dim=sizes,
    blocks=st.tuples(sizes, sizes, sizes),
)
computes = st.builds(
    Compute,
    name=names,
    kind=st.sampled_from(ComputeKind),
    flops=st.floats(0, allow_infinity=False, allow_nan=False),
    bytes=sizes,
    cycles=st.none() | sizes,
    kernel=st.none() | kernels,
)


@st.composite
def collectives(draw: st.DrawFn) -> Collective:
    kind = draw(st.sampled_from(CollectiveKind))
    group = st.lists(st.integers(0, 255), min_size=1, max_size=4).map(tuple)
    permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
    pairs = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=4).map(tuple)
    return Collective(
        name=draw(names),
        kind=kind,
        operand_bytes=draw(sizes),
        result_bytes=draw(sizes),
        groups=() if permute else draw(st.lists(group, min_size=1, max_size=4).map(tuple)),
        pairs=draw(pairs) if permute else (),
        asynchronous=draw(st.booleans()),
        strategy=draw(names),
        written=draw(names),
    )


leaves = computes | collectives() | st.builds(Start, collective=collectives()) | st.builds(Done, name=names)
nodes = st.recursive(
    leaves,
    lambda inner: st.builds(Loop, name=names, trips=st.integers(0, 1000), body=st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)
memories = st.builds(
    Memory, argument_bytes=sizes, output_bytes=sizes, temp_bytes=sizes, alias_bytes=sizes, code_bytes=sizes
)
programs = st.builds(
    Program,
    devices=st.integers(1, 256),
    schedule=st.lists(nodes, max_size=4).map(tuple),
    memory=st.none() | memories,
)


@given(programs)
def test_reading_what_was_written_gives_the_same_program(program: Program) -> None:
    text = canonical_json(to_json(program))
    assert from_json(json.loads(text)) == program


def document() -> dict[str, Any]:
    compute = Compute(name="fusion", kind=ComputeKind.MATMUL, flops=1e12, cycles=7)
    return to_json(Program(devices=2, schedule=(Loop(name="while", trips=40, body=(compute,)),)))


def test_fields_at_their_default_are_left_out() -> None:
    assert document() == {
        "schema": SCHEMA,
        "devices": 2,
        "memory": None,
        "schedule": [
            {
                "node": "loop",
                "name": "while",
                "trips": 40,
                "body": [{"node": "compute", "name": "fusion", "kind": "matmul", "flops": 1e12, "cycles": 7}],
            }
        ],
    }


def test_unknown_memory_stays_unknown() -> None:
    assert from_json(document()).memory is None


def test_fields_of_a_later_version_are_ignored() -> None:
    later = document()
    later["schedule"][0]["body"][0]["energy_j"] = 1.0
    assert from_json(later) == from_json(document())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": SCHEMA + 1}, "schema 2"),
        ({"schedule": [{"node": "teleport"}]}, "teleport"),
        ({"schedule": [{"node": "loop", "name": "w"}]}, "body"),
        ({"schedule": None}, "malformed"),
        ({"schedule": [{"node": "compute", "name": "f", "kind": "quantum"}]}, "quantum"),
    ],
)
def test_a_document_that_cannot_be_read_says_why(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        from_json(document() | change)
