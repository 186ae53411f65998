from __future__ import annotations

import optuna
import pytest

from tests.tuner.search.noise import noisy
from tuner.search.losing import LEAST, LosingPruner


def study(pruner: LosingPruner) -> optuna.Study:
    return optuna.create_study(direction="minimize", pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))


def run(in_study: optuna.Study, timings: list[float]) -> int:
    """Reports timings until the trial is pruned or has them all; returns how many it took."""
    trial = in_study.ask()
    for step, seconds in enumerate(timings):
        trial.report(seconds, step)
        if trial.should_prune():
            in_study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return step + 1
    in_study.tell(trial, sorted(timings)[len(timings) // 2])
    return len(timings)


def timings(step_s: float, seed: int, count: int = 8) -> list[float]:
    time = noisy([step_s], seed=seed)
    return [time(0) for _ in range(count)]


def test_what_has_lost_ends_at_the_first_look() -> None:
    ours = study(LosingPruner())
    assert run(ours, timings(1.0, seed=1)) == 8
    assert run(ours, timings(1.2, seed=2)) == LEAST


def test_what_is_faster_or_as_fast_is_timed_to_its_end() -> None:
    ours = study(LosingPruner())
    run(ours, timings(1.0, seed=1))
    assert run(ours, timings(0.9, seed=2)) == 8
    assert run(ours, timings(0.9, seed=3)) == 8


@pytest.mark.parametrize("seed", range(5))
def test_the_first_trial_has_nothing_to_lose_against(seed: int) -> None:
    assert run(study(LosingPruner()), timings(5.0, seed=seed)) == 8


def test_yesterdays_best_ends_no_trial_of_today() -> None:
    pruner = LosingPruner()
    ours = study(pruner)
    run(ours, timings(1.0, seed=1))
    pruner.since = 1  # a new run begins, on a device that has become slower
    assert run(ours, timings(1.2, seed=2)) == 8
    assert run(ours, timings(1.5, seed=3)) == LEAST
