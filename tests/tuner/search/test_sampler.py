import math

import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.tuner.search.fakes import FakeWorkload
from tests.tuner.search.test_funnel import SLICE
from tuner.layouts.layout import Candidate
from tuner.search import sampler as module
from tuner.search.parameters import Parameters
from tuner.search.pruner import BOUND_STEP, BoundPruner
from tuner.search.sampler import Adviser, DecidedSampler, make_adviser
from tuner.search.settings import SamplerName

PARAMETERS = Parameters(FakeWorkload().space)


def result(value: float | None, data: int = 8, **attributes: int) -> FrozenTrial:
    return create_trial(
        state=TrialState.PRUNED if value is None else TrialState.COMPLETE,
        value=value,
        params=PARAMETERS.defaults | {"data": data, "tensor": 8 // data},
        distributions=dict(PARAMETERS.distributions),
        user_attrs=dict(attributes),
    )


def legal(candidate: Candidate) -> bool:
    return candidate.layout.devices == 8 and candidate.layout.size("tensor") < 8


@pytest.mark.parametrize("make", [lambda seed: TPESampler(seed=seed), lambda seed: RandomSampler(seed=seed)])
def test_proposals_are_legal_and_repeatable(make: type[BaseSampler]) -> None:
    def drawn() -> list[str]:
        adviser = Adviser(make, PARAMETERS, SLICE, seed=3)
        out = []
        for step in range(30):
            candidate = adviser.propose(legal)
            assert candidate is not None
            assert legal(candidate)
            made = adviser.place(candidate.layout, {"tensor"})
            assert sorted(made.devices.tolist()) == list(range(8))
            adviser.learn([result(float(step), candidate.layout.size("data"))])
            out.append(candidate.digest + made.description)
        return out

    assert drawn() == drawn()


def test_a_sampler_without_legal_proposals_says_so() -> None:
    adviser = make_adviser(SamplerName.RANDOM, PARAMETERS, SLICE, seed=0)
    assert adviser is not None
    assert adviser.propose(lambda candidate: False) is None


def test_best_first_takes_no_advice() -> None:
    assert make_adviser(SamplerName.BEST_FIRST, PARAMETERS, SLICE, seed=0) is None


def test_tpe_learns_what_is_good() -> None:
    adviser = make_adviser(SamplerName.TPE, PARAMETERS, SLICE, seed=0)
    assert adviser is not None
    adviser.learn([result(1.0 if data == 4 else 9.0, data) for data in (2, 4, 8) for _ in range(20)])
    drawn = [adviser.propose(legal) for _ in range(20)]
    assert sum(candidate is not None and candidate.layout.size("data") == 4 for candidate in drawn) > 15


def test_memory_is_bounded_and_keeps_the_best_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 10)
    adviser = make_adviser(SamplerName.TPE, PARAMETERS, SLICE, seed=0)
    assert adviser is not None
    for number in range(100):
        adviser.learn([result(float(number))])
    values = [trial.value for trial in adviser._study.trials if trial.value is not None]
    assert len(values) <= 20
    assert {0.0, 1.0, 2.0, 3.0, 4.0, 99.0} <= set(values)


def test_a_repeat_teaches_nothing() -> None:
    adviser = make_adviser(SamplerName.TPE, PARAMETERS, SLICE, seed=0)
    assert adviser is not None
    adviser.learn([result(None, duplicate_of=3), result(None)])
    states = [trial.state for trial in adviser._study.trials]
    assert states.count(TrialState.PRUNED) == 1


def test_the_decided_sampler_hands_out_what_was_decided() -> None:
    sampler = DecidedSampler()
    study = optuna.create_study(sampler=sampler)
    sampler.params = {"walk": "rings"}
    assert study.ask().suggest_categorical("walk", ["rows", "rings"]) == "rings"


def test_the_pruner_ends_what_cannot_beat_the_best() -> None:
    study = optuna.create_study(direction="minimize", pruner=BoundPruner())
    pruner = BoundPruner()
    assert pruner.cut(study) == math.inf
    study.add_trial(create_trial(value=2.0))
    assert pruner.cut(study) == 2.0
    for bound, ends in ((1.9, False), (2.0, True), (3.0, True)):
        trial = study.ask()
        assert not trial.should_prune()  # nothing reported
        trial.report(bound, BOUND_STEP)
        assert trial.should_prune() is ends
        study.tell(trial, state=TrialState.FAIL)
