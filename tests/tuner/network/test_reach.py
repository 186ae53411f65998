"""Limited routing against what the compiler did, recorded by benchmarks/record_routing.py on v5e-4x8 and v5e-8x8."""

import json
from pathlib import Path

import numpy as np
import pytest

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Layout
from tuner.network.cost import Network
from tuner.network.patterns import Pattern
from tuner.network.reach import reachable
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.rejections import RejectReason
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

CASES = json.loads((Path(__file__).parents[2] / "assets/routing.json").read_text())["cases"]
EXACT = Calibration(generation="v5e", link_bytes_per_s=1e9, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)


def slice_of(case):
    return Slice(generation_name="v5e", shape=tuple(case["shape"]), wrap=(False, False))


def collective(case, bytes_=1 << 20):
    groups = tuple(map(tuple, case["groups"]))
    kind = CollectiveKind(case["op"])
    ring = tuple((a, b) for g in groups for a, b in zip(g, (*g[1:], g[0]), strict=True))
    permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
    return Collective(
        name="c",
        kind=kind,
        operand_bytes=bytes_,
        result_bytes=bytes_,
        groups=() if permute else groups,
        pairs=ring if permute else (),
    )


def unit(case):
    network, pattern = Network(slice_of(case), EXACT), Pattern.of(collective(case))
    devices = np.arange(slice_of(case).num_devices)[None]
    return pattern, network.unit_loads(pattern, devices, network.orders(pattern))


def test_what_compiles_and_what_is_direct_equals_the_compiler():
    wrong = []
    for case in CASES:
        _, loads = unit(case)
        if case["op"] in ("all-reduce", "all-gather"):
            theirs = "error" not in case
        elif case["op"] == "all-to-all":
            theirs = case["emitter"] == "AllToAllEmitter"
        else:
            theirs = not case["synchronous"]
        if bool(loads.direct[0]) != theirs:
            wrong.append((case["shape"], case["what"], case["op"]))
    assert len(CASES) >= 120
    assert sum("error" in case for case in CASES) >= 8
    assert wrong == []


def test_lengths_of_schedules_equal_the_compilers():
    relayed = [case for case in CASES if case.get("schedule_steps")]
    assert len(relayed) >= 40
    for case in relayed:
        pattern, _ = unit(case)
        op = collective(case)
        parts = len(pattern.members[0]) if case["op"] == "all-to-all" else 1
        step_s = op.operand_bytes / parts / EXACT.sustained_link_bytes_per_s
        ours = Network(slice_of(case), EXACT).cost(op, range(slice_of(case).num_devices)).time_s / step_s
        assert ours == pytest.approx(case["schedule_steps"], rel=0.1), (case["shape"], case["what"], case["op"])


def test_a_placement_that_does_not_compile_is_rejected_with_the_reason():
    slice_ = Slice(generation_name="v5e", shape=(8, 8), wrap=(False, False))
    layout = Layout.of({"data": 16, "tensor": 4})
    groups = tuple(tuple(range(4 * k, 4 * k + 4)) for k in range(16))
    op = Collective(name="ar", kind=CollectiveKind.ALL_REDUCE, operand_bytes=1, result_bytes=1, groups=groups)
    ranker = Ranker(Program(devices=64, schedule=(op,)), slice_, layout, EXACT)
    assert ranker.verdict(Placement(devices=tuple(range(64)))) is None
    mixed = Placement(devices=tuple(np.random.default_rng(0).permutation(64).tolist()))
    rejection = ranker.verdict(mixed)
    assert rejection.reason is RejectReason.ROUTING
    assert "all-reduce over tensor in groups of 4" in rejection.detail
    assert ranker.step_s(np.array([mixed.devices]))[0] == np.inf


def test_small_slices_reach_everything():
    assert reachable(Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False))).all()
    assert reachable(Slice(generation_name="v6e", shape=(8, 8), wrap=(False, False))).all()
    closed = reachable(Slice(generation_name="v5e", shape=(16, 16), wrap=(True, True)))
    assert closed[0, 15]
    assert closed[0, 14]
    assert not closed[0, 13]


def test_all_reduces_that_were_refused_are_those_without_routes():
    recorded = json.loads((Path(__file__).parents[2] / "assets/rings/v5e.json").read_text())["cases"]
    assert sum("error" in case for case in recorded) >= 20
    wrong = []
    for case in recorded:
        slice_ = Slice(generation_name="v5e", shape=tuple(case["shape"]), wrap=tuple(map(bool, case["wrap"])))
        network = Network(slice_, EXACT)
        pattern = Pattern.of(collective({**case, "op": "all-reduce"}))
        devices = np.arange(slice_.num_devices)[None]
        direct = network.unit_loads(pattern, devices, network.orders(pattern)).direct[0]
        if bool(direct) != ("error" not in case):
            wrong.append((case["shape"], case["what"]))
    assert wrong == []
