from __future__ import annotations

import json

import numpy as np
import pytest

from tests.tuner.search.fakes import FakeCompiler
from tests.tuner.search.test_funnel import NO, SLICE
from tuner.calibration.calibration import calibration
from tuner.errors import InvalidValue
from tuner.explain.comparison import ANOTHER_PROGRAM, Comparison, Side, Where, place, refused, why_not
from tuner.layouts.layout import Candidate, Layout
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default, row_major
from tuner.placements.placement import Placement
from tuner.ports import Compiled, WorkloadSpec
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.names import parse_slice
from tuner.timeline.ranker import Ranker


def candidate(data: int, weights: str = "data") -> Candidate:
    return Candidate(layout=Layout.of({"data": data, "tensor": 8 // data}, {"weights": weights, "blocks": "512"}))


def side(name: str, chosen: Candidate, where: str, **changes: object) -> Side:
    compiled = FakeCompiler().compile(WorkloadSpec(model="fake"), SLICE, chosen)
    assert isinstance(compiled, Compiled)
    given = {"slice_": SLICE, "calibration": calibration("v5e"), **changes}
    return place(name, chosen, compiled.program, where, **given)  # type: ignore[arg-type]


def step_s(found: Side) -> float:
    assert found.prediction is not None
    return found.prediction.step_s


def test_placements_by_name_and_by_device() -> None:
    best, default, row = (side("x", candidate(4), where) for where in (Where.BEST, Where.DEFAULT, Where.ROW_MAJOR))
    assert step_s(best) <= min(step_s(default), step_s(row))
    assert default.placement == jax_default(SLICE, candidate(4).layout)
    assert row.placement is not None
    listed = side("x", candidate(4), ",".join(map(str, row.placement.devices)))
    assert step_s(listed) == step_s(row)
    assert best.placement is not None
    assert step_s(side("x", candidate(4), Where.PLAN, plans=best.placement)) == step_s(best)


@pytest.mark.parametrize("where", ["nowhere", "0,1", "0,1,2,3,4,5,6,x", Where.PLAN, ""])
def test_a_place_that_is_none_says_what_would_be(where: str) -> None:
    with pytest.raises(InvalidValue, match=r"legal: default, row-major, best, plan, or the 8 device indices"):
        side("x", candidate(4), where)


def test_a_device_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidValue, match="not a bijection"):
        side("x", candidate(4), "0,0,1,2,3,4,5,6")


def test_two_choices_beside_each_other() -> None:
    comparison = Comparison(
        slice=SLICE, plan=side("plan 1", candidate(8, "replicated"), Where.BEST), own=side("own", candidate(4), "best")
    )
    loss = step_s(comparison.own) - step_s(comparison.plan)
    assert loss > 0
    assert comparison.speedup == pytest.approx(1 + loss / step_s(comparison.plan))
    assert sum(part.loss_s or 0.0 for part in comparison.parts) == pytest.approx(loss)
    document = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert document["own"]["step_s"] == step_s(comparison.own)
    assert document["own"]["memory_bytes"] == comparison.own.memory_bytes


def test_what_was_rejected_has_a_reason_and_no_figures() -> None:
    own = refused("own", candidate(4), NO)
    comparison = Comparison(slice=SLICE, plan=side("plan 1", candidate(8), "best"), own=own)
    assert own.reason == "compiler-error: for the test"
    assert comparison.speedup is None
    assert all(part.loss_s is None for part in comparison.parts)
    assert comparison.to_json()["own"]["placement"] is None


def test_what_sends_over_a_missing_link_does_not_run() -> None:
    layout = candidate(8).layout
    alone = [Degraded.parse(f"{a}:{b}=0") for a, b in (("0,0", "1,0"), ("0,0", "0,1"))]
    cut = side("own", Candidate(layout=layout), Where.ROW_MAJOR, links=alone)
    assert cut.prediction is None
    assert cut.reason == "it sends over a link that is missing"


def test_where_the_program_depends_on_the_placement_another_class_is_told() -> None:
    slice_ = parse_slice("v5e-8x8")
    layout = Layout.of({"data": 32, "tensor": 2})
    groups = tuple((2 * d, 2 * d + 1) for d in range(32))
    exchange = Collective(
        name="a2a", kind=CollectiveKind.ALL_TO_ALL, operand_bytes=1 << 20, result_bytes=1 << 20, groups=groups
    )
    ranker = Ranker(Program(devices=64, schedule=(exchange,)), slice_, layout, calibration("v5e"))
    first = row_major(slice_)  # pairs of neighbours
    second = Placement(devices=tuple(np.random.default_rng(1).permutation(64).tolist()))
    direct = ranker.direct(np.array([first.devices, second.devices]))
    assert not (direct[0] == direct[1]).all()
    assert why_not(ranker, first, like=first) == ""
    assert why_not(ranker, second, like=first) == ANOTHER_PROGRAM
    assert why_not(ranker, second) == ""
