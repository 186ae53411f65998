from __future__ import annotations

import pytest

from adapters.jax.hlo.read import read_program
from tests.adapters.jax.hlo.fixtures import VERSIONS, facts, loops, program, total
from tuner.errors import InvalidValue
from tuner.program.program import ComputeKind, Loop

MODULE = """HloModule jit_step, is_scheduled=true, num_partitions=1

%add (p: s32[]) -> s32[] {{
  %p = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %sum = s32[] add(%one, %p)
}}

%body (param: (s32[], s32[], f32[512,128])) -> (s32[], s32[], f32[512,128]) {{
  %param = (s32[], s32[], f32[512,128]) parameter(0)
  %i = s32[] get-tuple-element(%param), index=0
  %n = s32[] get-tuple-element(%param), index=1
  %step = s32[] constant({step})
  %next = s32[] {next}
  %x = f32[512,128] get-tuple-element(%param), index=2
  %y = f32[512,128] negate(%x)
  ROOT %result = (s32[], s32[], f32[512,128]) tuple(%next, %n, %y)
}}

%condition (param: (s32[], s32[], f32[512,128])) -> pred[] {{
  %param = (s32[], s32[], f32[512,128]) parameter(0)
  %i = s32[] get-tuple-element(%param), index=0
  %n = s32[] get-tuple-element(%param), index=1
  %limit = s32[] constant({limit})
  ROOT %more = pred[] compare({compared}), direction={direction}
}}

ENTRY %main (a: f32[512,128], m: s32[]) -> f32[512,128] {{
  %a = f32[512,128] parameter(0)
  %m = s32[] parameter(1)
  %start = s32[] constant({start})
  %eleven = s32[] constant(11)
  %copied = s32[] copy(%start)
  %init = (s32[], s32[], f32[512,128]) tuple(%copied, {carried}, %a)
  %loop = (s32[], s32[], f32[512,128]) while(%init), condition=%condition, body=%body
  ROOT %out = f32[512,128] get-tuple-element(%loop), index=2
}}
"""
PLAIN = {
    "step": "1",
    "next": "add(%i, %step)",
    "limit": "7",
    "compared": "%i, %limit",
    "direction": "LT",
    "start": "0",
    "carried": "%eleven",
}


def trips(**changes: str) -> int:
    nodes = read_program(MODULE.format(**PLAIN | changes), 1, None).schedule
    return sum(node.trips for node in nodes if isinstance(node, Loop))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 7),
        ({"start": "2"}, 5),
        ({"step": "2"}, 4),
        ({"step": "3", "limit": "9"}, 3),
        ({"direction": "LE"}, 8),
        ({"direction": "NE"}, 7),
        ({"compared": "%limit, %i", "direction": "GT"}, 7),
        ({"start": "7", "limit": "0", "next": "subtract(%i, %step)", "direction": "GT"}, 7),
        ({"start": "7", "limit": "0", "step": "-1", "direction": "GE"}, 8),
        ({"next": "fusion(%i), kind=kLoop, calls=%add"}, 7),
        ({"compared": "%i, %n"}, 11),  # a limit that the loop carries along
        ({"start": "9"}, 0),
    ],
)
def test_start_step_and_limit_count(changes: dict[str, str], expected: int) -> None:
    assert trips(**changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"compared": "%i, %n", "carried": "%m"},
        {"next": "multiply(%i, %step)"},
        {"next": "add(%i, %i)"},
        {"direction": "EQ"},
        {"start": "0", "next": "subtract(%i, %step)"},
    ],
)
def test_a_loop_without_a_fixed_count_is_refused_by_name(changes: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match="loop 'loop'"):
        trips(**changes)


@pytest.mark.parametrize("version", VERSIONS)
def test_trip_counts_of_compiled_loops(version: str) -> None:
    def counts(name: str) -> list[int]:
        return sorted(loop.trips for loop in loops(program(version, name).schedule))

    assert counts("layers_1") == counts("layers_3_unrolled") == []
    assert counts("layers_6_scan") == [6]
    assert counts("attention_stack") == [4]
    assert counts("ring") == [4]
    assert counts("nested_loops") == [3, 4, 5]  # 0, 2, 4, 6 < 7
    # Eight shards from both directions, unrolled by two: the text says 4 and counts 0, 2.
    assert counts("windowed_layers") == [2, 2, 6]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_scan_of_many_layers_costs_as_many_times_one(version: str) -> None:
    two, six = program(version, "layers_2_scan"), program(version, "layers_6_scan")
    assert total(six, "cycles") == pytest.approx(3 * total(two, "cycles"), rel=0.05)
    one, three = program(version, "layers_1"), program(version, "layers_3_unrolled")
    layer = total(one, "flops")
    assert layer == 2 * 2 * 2048 * 2048 * 8192
    assert total(six, "flops") == 6 * layer
    assert total(three, "flops") == 3 * layer
    # The compiler's own count knows the body only once, which is why ours must not lean on it.
    assert facts(version, "layers_6_scan")["flops"] < 1.01 * layer
    matmul = total(six, "cycles", ComputeKind.MATMUL) / 6
    assert 0.75 < matmul / total(three, "cycles", ComputeKind.MATMUL) * 3 < 1.05
