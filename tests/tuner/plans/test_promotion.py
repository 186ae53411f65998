from dataclasses import replace

import pytest

from tests.tuner.plans.samples import make_plan
from tuner.layouts.layout import Candidate, Layout
from tuner.plans.plan import Evidence
from tuner.plans.promotion import Incumbent, judge

OTHER = Candidate(layout=Layout.of({"ring": 8}))


def test_the_first_plan_is_promoted() -> None:
    assert judge(make_plan(), None, margin=0.01).promote


def test_only_a_gain_of_the_margin_replaces_another_decision() -> None:
    active = make_plan(step_s=1.0)
    assert judge(make_plan(step_s=0.98, candidate=OTHER), active, margin=0.01).promote
    verdict = judge(make_plan(step_s=0.995, candidate=OTHER), active, margin=0.01)
    assert not verdict.promote
    assert "+0.5%" in verdict.reason


def test_the_same_decision_takes_newer_figures_and_nothing_else() -> None:
    active = make_plan(step_s=1.0)
    assert judge(make_plan(step_s=1.1), active, margin=0.01).promote
    assert not judge(make_plan(step_s=1.0), active, margin=0.01).promote


def test_the_same_decision_takes_a_proof_and_baselines_that_were_missing() -> None:
    active = make_plan(baselines=())
    assert judge(make_plan(), active, margin=0.01).promote
    assert not judge(active, make_plan(), margin=0.01).promote
    assert judge(make_plan(baselines=(), proved=True), active, margin=0.01).promote
    assert not judge(active, make_plan(baselines=(), proved=True), margin=0.01).promote


def test_kinds_of_evidence_are_not_compared() -> None:
    measured = make_plan(step_s=1.0, evidence=Evidence.MEASURED)
    verdict = judge(replace(make_plan(candidate=OTHER), step_s=0.1), measured, margin=0.01)
    assert not verdict.promote
    assert "not comparable" in verdict.reason


MEASURED = make_plan(step_s=1.0, evidence=Evidence.MEASURED, candidate=OTHER)


@pytest.mark.parametrize(
    ("incumbent", "promote", "reason"),
    [
        (None, False, "not comparable"),  # predicted plans are not measured away unseen
        (Incumbent(measured_s=1.02), True, "2.0% faster than the active plan, measured in the same run"),
        (Incumbent(measured_s=1.005), False, "does not reach the margin"),
        (Incumbent(measured_s=0.9), False, "does not reach the margin"),
        (Incumbent(measured_s=None, refused="out of memory"), True, "lost where both were run: out of memory"),
    ],
)
@pytest.mark.parametrize("evidence", [Evidence.PREDICTED, Evidence.MEASURED])
def test_a_measured_plan_is_compared_as_both_did_in_the_same_run(
    incumbent: Incumbent | None, promote: bool, reason: str, evidence: Evidence
) -> None:
    active = make_plan(step_s=0.1 if evidence is Evidence.PREDICTED else 1.0, evidence=evidence)
    if incumbent is None and evidence is Evidence.MEASURED:
        reason = "does not reach the margin"
    verdict = judge(MEASURED, active, margin=0.01, incumbent=incumbent)
    assert verdict.promote is promote
    assert reason in verdict.reason


def test_the_same_decision_becomes_a_measured_one() -> None:
    verdict = judge(make_plan(evidence=Evidence.MEASURED, step_s=2.0), make_plan(step_s=1.0), margin=0.01)
    assert verdict.promote
    assert verdict.reason == "the same layout and placement, measured"
