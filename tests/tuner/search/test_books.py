from dataclasses import replace

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

import storage
from tests.tuner.search.test_funnel import EXHAUSTIVE, Bench
from tuner.plans.plan import Constraints
from tuner.search.books import reconcile
from tuner.stores import TrialState


def told(study: optuna.Study) -> list[tuple[object, ...]]:
    return [(t.number, t.state, t.values, t.params, t.user_attrs) for t in study.trials]


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.run()
    return bench


def test_a_study_in_order_stays_as_it_is(bench: Bench) -> None:
    before = told(bench.study)
    (mended,) = reconcile(bench.store, bench.optuna)
    assert (mended.mended, mended.rebuilt, mended.left) == (0, False, "")
    assert told(bench.study) == before


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_study_that_is_gone_is_made_anew(bench: Bench, rebuild: bool) -> None:
    before = told(bench.study)
    optuna.delete_study(study_name=bench.study.study_name, storage=bench.optuna)
    (mended,) = reconcile(bench.store, bench.optuna, rebuild=rebuild)
    assert mended.mended == len(before)
    assert told(bench.study) == before
    bench.run()  # parameters have the domains of the workload, or Optuna would refuse
    assert told(bench.study) == before


def test_a_result_that_disagrees_makes_the_study_anew(bench: Bench) -> None:
    ours = bench.store.studies()[0]
    best = next(t for t in bench.store.trials(ours.id) if t.state is TrialState.COMPLETE)
    bench.store.save_trials(ours.id, [replace(best, predicted_s=0.125)])
    (mended,) = reconcile(bench.store, bench.optuna)
    assert mended.rebuilt
    assert bench.study.trials[best.number].value == 0.125


def test_a_number_that_is_optunas_alone_stays_taken(bench: Bench) -> None:
    ours = bench.store.studies()[0]
    count = len(bench.study.trials)
    last = next(t for t in bench.store.trials(ours.id) if t.state is TrialState.COMPLETE)
    bench.store.save_trials(ours.id, [replace(last, number=count + 2)])
    (mended,) = reconcile(bench.store, bench.optuna)
    assert mended.mended == 3
    states = [t.state for t in bench.study.trials[count:]]
    assert states == [OptunaState.FAIL, OptunaState.FAIL, OptunaState.COMPLETE]


def test_a_trial_that_was_cut_off_fails_and_one_that_ended_has_its_result(bench: Bench) -> None:
    ours = bench.store.studies()[0]
    done = next(t for t in bench.store.trials(ours.id) if t.state is TrialState.COMPLETE)
    first, second = bench.study.ask(), bench.study.ask()
    first.set_user_attr("candidate", done.candidate.digest)
    bench.store.save_trials(ours.id, [replace(done, number=first.number)])
    bench.store.save_trials(ours.id, [replace(done, number=second.number, state=TrialState.RUNNING)])
    (mended,) = reconcile(bench.store, bench.optuna)
    assert mended.mended >= 2
    assert bench.study.trials[first.number].value == done.predicted_s
    assert bench.study.trials[second.number].state is OptunaState.FAIL
    assert bench.store.trials(ours.id)[second.number].state is TrialState.INTERRUPTED


def test_a_study_that_workers_are_at_is_left_to_them(bench: Bench) -> None:
    ours = bench.store.studies()[0]
    bench.store.claim(f"worker/{ours.id}/other", owner="other", ttl_s=60)
    (mended,) = reconcile(bench.store, bench.optuna, rebuild=True)
    assert "workers are at it" in mended.left


def test_every_study_is_mended(bench: Bench) -> None:
    bench.run(replace(EXHAUSTIVE, constraints=Constraints(reserve_hbm_bytes=1)))
    with storage.open_store("memory://") as empty:
        assert list(reconcile(empty, bench.optuna)) == []
    assert len(list(reconcile(bench.store, bench.optuna))) == 2
