from __future__ import annotations

import json
from dataclasses import replace

import pytest

from storage.memory import MemoryStore
from tests.tuner.plans.samples import make_plan
from tests.tuner.search.test_funnel import EXHAUSTIVE, NO, SLICE, Bench
from tuner.explain.explanation import Explanation, explain, predicted
from tuner.explain.parts import beside, parts
from tuner.layouts.layout import Candidate
from tuner.plans.plan import Evidence, StoredPlan
from tuner.plans.programs import program_of, trial_of
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.outcome import Outcome


def too_big_over_two(candidate: Candidate) -> Rejection | None:
    """Rejects layouts with tensor=2, by more where the weights are whole."""
    layout = candidate.layout
    if layout.size("tensor") != 2:
        return NO if layout.size("tensor") == 4 else None
    needed = 20e9 if layout.option("weights") == "replicated" else 17e9
    return Rejection(
        stage=Stage.COMPILE,
        reason=RejectReason.HBM,
        detail=f"needs {needed / 1e9:.0f} GB",
        numbers={"needed_bytes": needed},
    )


@pytest.fixture(scope="module")
def searched() -> tuple[Bench, Outcome, StoredPlan]:
    bench = Bench(fail=too_big_over_two)
    outcome = bench.run(EXHAUSTIVE)
    assert outcome.plan is not None
    return bench, outcome, outcome.plan


@pytest.fixture(scope="module")
def explained(searched: tuple[Bench, Outcome, StoredPlan]) -> Explanation:
    bench, _, plan = searched
    return explain(bench.store, plan)


def test_the_runner_up_is_the_best_other_candidate_and_its_parts_add_up_to_what_it_loses(
    searched: tuple[Bench, Outcome, StoredPlan], explained: Explanation
) -> None:
    _, outcome, plan = searched
    first, second = outcome.trials[:2]
    assert plan.plan.trial == first.number
    runner_up = explained.rivals[0]
    assert runner_up.trial == second.number
    assert runner_up.loss_s == pytest.approx((second.predicted_s or 0) - (first.predicted_s or 0))
    assert sum(part.loss_s or 0.0 for part in runner_up.parts) == pytest.approx(runner_up.loss_s)
    losses = [part.loss_s or 0.0 for part in runner_up.parts]
    assert losses == sorted(losses, reverse=True)
    assert [rival.step_s for rival in explained.rivals] == sorted(rival.step_s for rival in explained.rivals)


def test_a_step_is_the_sum_of_its_parts_and_communication_is_told_apart_by_axis(
    searched: tuple[Bench, Outcome, StoredPlan],
) -> None:
    _, outcome, _ = searched
    a = predicted(outcome.baselines["A"].details)
    assert a is not None
    found = parts(a)
    assert sum(found.values()) == pytest.approx(a.step_s)
    assert found["exposed, over data"] == pytest.approx(a.exposed_communication_s)
    assert found["exposed, over data"] > 0


def test_every_trial_is_in_one_family_and_each_ground_names_its_nearest(
    searched: tuple[Bench, Outcome, StoredPlan], explained: Explanation
) -> None:
    bench, outcome, plan = searched
    trials = bench.store.trials(outcome.study.id)
    by_name = {family.name: family for family in explained.families}
    assert set(by_name) == {"data", "data+tensor"}
    assert sum(family.trials for family in explained.families) == len(trials)
    winner, other = explained.families
    assert winner.name == "data"
    assert winner.best_s == plan.plan.step_s
    assert (other.placed, other.best_s, other.best) == (0, None, "")
    reasons = {ground.reason: ground for ground in other.grounds}
    hbm = reasons[RejectReason.HBM]
    assert hbm.detail == "needs 17 GB"
    assert "weights=data" in hbm.nearest
    rejected = [t for t in trials if t.candidate.layout.size("tensor") > 1]
    assert sum(ground.trials for ground in other.grounds) == other.trials == len(rejected)
    assert explained.refused == bench.store.refusals(outcome.study.id)


def test_no_limit_is_beaten(searched: tuple[Bench, Outcome, StoredPlan], explained: Explanation) -> None:
    limits = explained.limits
    assert limits is not None
    assert limits.memory_s is not None
    for _, seconds, multiple in limits.distances:
        assert seconds <= limits.step_s
        assert multiple == pytest.approx(limits.step_s / seconds)
        assert multiple >= 1
    assert [seconds for _, seconds, _ in limits.distances] == sorted(
        (seconds for _, seconds, _ in limits.distances), reverse=True
    )
    assert limits.network_s <= limits.placed_s * (1 + 1e-9)


def test_it_is_strict_json(explained: Explanation) -> None:
    document = json.loads(json.dumps(explained.to_json(), allow_nan=False))
    assert document["rivals"][0]["parts"]
    assert document["families"][0]["best_s"] == document["step_s"]
    assert document["limits"]["multiples"]["compute"] > 1


def test_a_measured_plan_has_measured_rivals_only(searched: tuple[Bench, Outcome, StoredPlan]) -> None:
    _, outcome, stored = searched
    store = MemoryStore()
    study = store.open_study(outcome.study.key)
    trials = [
        replace(trial, measured_s=None if trial.number == outcome.trials[2].number else (trial.predicted_s or 1.0) + 1)
        for trial in outcome.trials
    ]
    store.save_trials(study.id, trials)
    measured = replace(stored, plan=replace(stored.plan, evidence=Evidence.MEASURED, step_s=stored.plan.step_s + 1))
    rivals = explain(store, measured, rivals=99).rivals
    assert outcome.trials[2].number not in {rival.trial for rival in rivals}
    assert rivals[0].loss_s == pytest.approx((outcome.trials[1].predicted_s or 0) - stored.plan.step_s)
    assert len(rivals) == len(trials) - 2


def test_a_plan_without_its_study_is_explained_as_far_as_it_goes() -> None:
    store = MemoryStore()
    stored = store.promote(make_plan())
    found = explain(store, stored)
    assert (found.searched, found.rivals, found.families, found.limits) == (False, (), (), None)
    assert found.to_json()["limits"] is None
    assert trial_of(store, stored.plan) is None
    assert program_of(store, stored.plan) is None


def test_the_program_of_a_plan_is_found(searched: tuple[Bench, Outcome, StoredPlan]) -> None:
    bench, outcome, stored = searched
    assert trial_of(bench.store, stored.plan) == outcome.trials[0]
    found = program_of(bench.store, stored.plan)
    assert found is not None
    assert found.program.devices == SLICE.num_devices
    other = replace(stored.plan, toolchain=replace(stored.plan.toolchain, libtpu="9"))
    assert program_of(bench.store, other) is None


def test_parts_of_a_step_without_a_timeline_are_not_known(searched: tuple[Bench, Outcome, StoredPlan]) -> None:
    _, outcome, _ = searched
    ours = predicted(outcome.trials[0].details)
    found = beside(ours, None)
    assert found
    assert all(part.loss_s is None and part.theirs_s is None for part in found)
    assert predicted({}) is None
