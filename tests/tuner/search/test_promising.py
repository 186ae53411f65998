from __future__ import annotations

from tests.tuner.plans.samples import make_plan
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.default import jax_default
from tuner.placements.placement import Placement
from tuner.rejections import Stage
from tuner.search.promising import Role, promising
from tuner.slices.names import parse_slice
from tuner.stores import Trial, TrialState

SLICE = parse_slice("v5e-2x4")


def trial(number: int, predicted_s: float | None, **numbers: float) -> Trial:
    return Trial(
        number=number,
        candidate=Candidate(layout=Layout.of({"cfg": 2, "context": 4}, {"n": number})),
        state=TrialState.COMPLETE,
        stage=Stage.PLACE,
        predicted_s=predicted_s,
        numbers=numbers,
        placement=None if predicted_s is None else Placement(devices=tuple(range(8))),
    )


TRIALS = [trial(number, 1.0 + 0.02 * number) for number in range(30)]


def chosen(trials: list[Trial], **changes: object) -> list[tuple[Role, int]]:
    settings = {"error": 0.1, "baselines": {}, "others": 0} | changes
    entries = promising(trials, SLICE, **settings)  # type: ignore[arg-type]
    return [(entry.role, -1 if entry.trial is None else entry.trial.number) for entry in entries]


def test_those_within_the_models_error_are_promising() -> None:
    assert chosen(TRIALS) == [(Role.PROMISING, number) for number in range(6)]  # 1.10 is within, 1.12 is not
    assert chosen(TRIALS, error=0.0) == [(Role.PROMISING, 0)]


def test_no_more_than_so_many_are() -> None:
    assert len(chosen(TRIALS, error=1.0)) == 8
    assert chosen(TRIALS, error=1.0, most=2) == [(Role.PROMISING, 0), (Role.PROMISING, 1)]


def test_baselines_are_always_measured_in_jaxs_default_order() -> None:
    baseline = trial(29, 3.0, default_step_s=3.5)
    entries = promising([*TRIALS[:3], baseline], SLICE, error=0.0, baselines={"A": baseline}, others=0)
    last = entries[-1]
    assert (last.role, last.name, last.predicted_s) == (Role.BASELINE, "A", 3.5)
    assert last.placement == jax_default(SLICE, baseline.candidate.layout)


def test_the_plan_in_service_is_always_measured_first() -> None:
    unknown = make_plan()
    assert chosen(TRIALS, error=0.0, incumbent=unknown) == [(Role.INCUMBENT, -1), (Role.PROMISING, 0)]
    known = make_plan(candidate=TRIALS[20].candidate, placement=TRIALS[20].placement)
    assert chosen(TRIALS, error=0.0, incumbent=known) == [(Role.INCUMBENT, 20), (Role.PROMISING, 0)]


def test_what_is_both_is_measured_once() -> None:
    best = make_plan(candidate=TRIALS[0].candidate, placement=TRIALS[0].placement)
    assert chosen(TRIALS, error=0.0, incumbent=best) == [(Role.INCUMBENT, 0)]


def test_one_random_other_keeps_the_model_honest_and_nights_differ() -> None:
    drawn = {chosen(TRIALS, others=1, seed=seed)[-1] for seed in range(40)}
    assert {role for role, _ in drawn} == {Role.RANDOM}
    assert {number for _, number in drawn} <= set(range(6, 30))
    assert len(drawn) > 5
    assert chosen(TRIALS, others=1, seed=3) == chosen(TRIALS, others=1, seed=3)


def test_nothing_predicted_is_nothing_promising() -> None:
    assert chosen([trial(0, None)], others=1) == []
