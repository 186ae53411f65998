"""Step times of small programs with known answers."""

import json

import numpy as np
import pytest

from tuner.calibration.calibration import Calibration
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.program.program import (
    Collective,
    CollectiveKind,
    Compute,
    ComputeKind,
    Done,
    Loop,
    Program,
    Start,
)
from tuner.slices.slice import Slice
from tuner.timeline.prediction import Prediction
from tuner.timeline.ranker import Ranker
from tuner.timeline.timeline import predict

S = 1 << 20
V5E = Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False))
EXACT = Calibration(generation="v5e", link_bytes_per_s=1.0 * S, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)
LAYOUT = Layout.of({"cfg": 4, "ulysses": 4})
IDENTITY = Placement(devices=tuple(range(16)), description="row-major")
ROWS = tuple(tuple(range(4 * k, 4 * k + 4)) for k in range(4))
RING = tuple((k, (k + 4) % 16) for k in range(16))


def exchange(name="a2a", bytes_=S):
    return Collective(name=name, kind=CollectiveKind.ALL_TO_ALL, operand_bytes=bytes_, result_bytes=bytes_, groups=ROWS)


def permute(name, bytes_=S, pairs=RING):
    return Collective(
        name=name,
        kind=CollectiveKind.COLLECTIVE_PERMUTE,
        operand_bytes=bytes_,
        result_bytes=bytes_,
        pairs=pairs,
        asynchronous=True,
    )


def seconds(value):
    return Compute(name="dot", kind=ComputeKind.MATMUL, cycles=int(value * 1.5e9))


def step(*nodes):
    return predict(Program(devices=16, schedule=nodes), IDENTITY, V5E, LAYOUT, EXACT)


def test_synchronous_collectives_add_up_and_loops_multiply():
    result = step(seconds(1.0), Loop(name="layers", trips=3, body=(seconds(2.0), exchange())))
    assert result.step_s == pytest.approx(1 + 3 * (2 + 1))
    assert result.exposed_communication_s == pytest.approx(3.0)
    assert result.compute_s == pytest.approx(7.0)
    (only,) = result.collectives
    assert (only.axes, only.times, only.exposed_s) == (("ulysses",), 3, pytest.approx(3.0))
    assert result.exposed_by_axes == {"ulysses": pytest.approx(3.0)}


def test_only_what_lies_between_start_and_done_overlaps():
    # Rows 0 -> 1 -> 2 -> 3 -> 0 along y: the way back crosses the others' links, but in the other direction.
    hidden = step(Start(collective=permute("p")), seconds(2.0), Done(name="p"))
    assert hidden.step_s == pytest.approx(2.0)
    assert hidden.exposed_communication_s == 0
    half = step(Start(collective=permute("p")), seconds(0.25), Done(name="p"), seconds(1.0))
    assert half.step_s == pytest.approx(2.0)
    assert half.exposed_communication_s == pytest.approx(0.75)


def test_collectives_in_flight_share_links():
    both = step(Start(collective=permute("p")), Start(collective=permute("q")), Done(name="p"), Done(name="q"))
    assert both.step_s == pytest.approx(2.0)
    back = permute("q", pairs=tuple((b, a) for a, b in RING[:12]))
    forth = permute("p", pairs=RING[:12])
    apart = step(Start(collective=forth), Start(collective=back), Done(name="p"), Done(name="q"))
    assert apart.step_s == pytest.approx(1.0)


def test_a_synchronous_collective_waits_for_links_that_are_in_use():
    other = exchange()
    across = step(Start(collective=permute("p")), other, Done(name="p"))
    assert across.step_s == pytest.approx(1.0)  # rows and columns share no link
    inline = permute("p", pairs=tuple((r * 4 + k, r * 4 + k + 1) for r in range(4) for k in range(3)))
    assert step(Start(collective=inline), other, Done(name="p")).step_s == pytest.approx(2.0)


def test_the_first_trip_of_a_loop_shares_links_with_what_is_in_flight():
    inline = permute("p", pairs=tuple((r * 4 + k, r * 4 + k + 1) for r in range(4) for k in range(3)))
    body = Loop(name="loop", trips=3, body=(exchange(),))
    assert step(Start(collective=inline), body, Done(name="p")).step_s == pytest.approx(4.0)


def test_memory_bound_operations_take_the_smaller_estimate():
    hbm = V5E.generation.hbm_bytes_per_s * EXACT.hbm_efficiency
    memory = Compute(name="add", kind=ComputeKind.MEMORY, bytes=int(hbm), cycles=int(3 * 1.5e9))
    assert step(memory).memory_s == pytest.approx(1.0)
    no_bytes = Compute(name="copy", kind=ComputeKind.COPY, cycles=int(1.5e9))
    assert step(no_bytes).copy_s == pytest.approx(1.0)
    assert step(Compute(name="tuple", kind=ComputeKind.SCALAR, cycles=10**9)).step_s == 0


def test_kernels_without_a_table_are_named():
    unknown = Compute(name="mine", kind=ComputeKind.KERNEL, flops=1.97e14 * 0.8)
    result = step(unknown)
    assert result.kernel_s == pytest.approx(1.0)
    assert result.unknown_kernels == ("mine",)


def test_groups_of_one_cost_nothing():
    alone = Collective(
        name="ar",
        kind=CollectiveKind.ALL_REDUCE,
        operand_bytes=S,
        result_bytes=S,
        groups=tuple((k,) for k in range(16)),
    )
    assert step(alone).step_s == 0


def test_a_prediction_survives_json():
    result = step(seconds(1.0), exchange(), Start(collective=permute("p")), Done(name="p"))
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert Prediction.from_json(document) == result
    assert document["compute_s"] == pytest.approx(1.0)


def test_many_placements_cost_what_each_costs_alone():
    rng = np.random.default_rng(1)
    placements = np.array([rng.permutation(16) for _ in range(40)])
    for nodes in (
        (seconds(0.1), exchange(), permute("p")),
        (Start(collective=permute("p")), exchange(), seconds(0.5), Done(name="p")),
    ):
        ranker = Ranker(Program(devices=16, schedule=nodes), V5E, LAYOUT, EXACT)
        together = ranker.step_s(placements)
        alone = [ranker.predict(Placement(devices=tuple(row))).step_s for row in placements.tolist()]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_the_bound_by_cuts_is_below_the_cost_and_blocks_reach_it():
    result = step(exchange())
    (only,) = result.collectives
    assert only.bound_s <= only.alone_s
    blocks = tuple(V5E.device((2 * (k // 8) + k % 2, 2 * (k // 4 % 2) + k // 2 % 2)) for k in range(16))
    best = predict(Program(devices=16, schedule=(exchange(),)), Placement(devices=blocks), V5E, LAYOUT, EXACT)
    assert best.step_s == pytest.approx(0.5)
    assert best.communication_bound_s == pytest.approx(0.5)


def test_numbers_of_devices_must_agree():
    with pytest.raises(InvalidValue, match="8 devices"):
        Ranker(Program(devices=8, schedule=()), V5E, LAYOUT, EXACT)
