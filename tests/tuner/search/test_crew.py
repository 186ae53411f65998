"""Several workers at one study: they share it, and what one leaves behind another picks up."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from tests.tuner.search.fakes import FakeCompiler
from tests.tuner.search.test_funnel import EXHAUSTIVE, SLICE, TOOLCHAIN, Bench, best_of_all, legal
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.leases import Lease
from tuner.plans.plan import Constraints
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.cache import Subject, compile_resource
from tuner.search.crew import MOST_VANISHED
from tuner.search.events import Event, TrialEnded, TrialStarted
from tuner.search.revision import study_key
from tuner.stores import Study, Trial, TrialState

KEY = study_key(Bench().workload, SLICE, TOOLCHAIN, EXHAUSTIVE.constraints, calibration("v5e"))
SUBJECT = Subject(workload=KEY.workload, source="1", spec=WorkloadSpec(model="fake"), slice=SLICE, toolchain=TOOLCHAIN)
BASELINE = next(c for c in legal() if c.layout.size("data") == 8 and c.layout.option("weights") == "data")
ABORT = Rejection(stage=Stage.COMPILE, reason=RejectReason.COMPILER_ABORT, detail="SIGABRT")


def resource(candidate: Candidate) -> str:
    return compile_resource(SUBJECT.key(candidate).digest)


def hold(bench: Bench, what: str, ttl_s: float = 3600) -> Lease:
    lease = bench.store.claim(what, owner="other/1/a", ttl_s=ttl_s)
    assert lease is not None
    return lease


def complete(bench: Bench) -> Counter[str]:
    (study,) = bench.store.studies()
    return Counter(t.candidate.digest for t in bench.store.trials(study.id) if t.state is TrialState.COMPLETE)


def run_in_thread(bench: Bench, **changes: object) -> Callable[[], None]:
    """Starts a run and returns what waits for it, passing on what it raised."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            bench.run(**changes)  # type: ignore[arg-type]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def join() -> None:
        thread.join(60)
        assert not thread.is_alive()
        assert errors == []

    return join


def test_two_searches_of_one_study_share_it() -> None:
    bench = Bench()
    together = threading.Barrier(2, timeout=30)
    met = threading.local()

    def fail(candidate: Candidate) -> None:
        if not hasattr(met, "done"):  # both are at a compile at once, once
            met.done = True
            together.wait()

    bench.compiler.fail = fail
    # Pools' threads are new ones for each search, so each search waits for the other one.
    joins = [run_in_thread(bench, lease_ttl_s=5.0) for _ in range(2)]
    for join in joins:
        join()
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)
    assert len(set(bench.screener.asked)) == len(bench.screener.asked)
    assert set(complete(bench).values()) == {1}
    (study,) = bench.store.studies()
    trials = bench.store.trials(study.id)
    assert {t.state for t in trials} <= {TrialState.COMPLETE, TrialState.REJECTED}
    assert len({t.candidate.digest for t in trials}) == len(trials)
    assert [t.number for t in trials] == [t.number for t in bench.study.trials]
    assert all(t.state.is_finished() for t in bench.study.trials)
    active = bench.store.active(KEY)
    assert active is not None
    assert active.plan.step_s == pytest.approx(best_of_all())
    assert active.plan.proved
    assert study.proved
    assert bench.store.leases() == []


def test_a_candidate_that_somebody_holds_is_passed_over_and_waited_for() -> None:
    bench = Bench()
    lease = hold(bench, resource(BASELINE))
    asked_at_wait = []

    def pause(seconds: float) -> None:
        asked_at_wait.append(len(bench.compiler.asked))
        bench.store.release(lease)

    outcome = bench.run(pause=pause)
    assert outcome.proved
    assert bench.compiler.asked.index(BASELINE.digest) == asked_at_wait[0] > 1
    assert outcome.baselines["A"].candidate == BASELINE


def test_what_another_worker_did_meanwhile_is_not_done_again() -> None:
    """It holds the baseline, and its result is there when it lets go."""
    bench, other = Bench(), Bench()
    other.store, other.optuna = bench.store, bench.optuna
    lease = hold(bench, resource(BASELINE))

    def pause(seconds: float) -> None:
        if bench.store.release(lease):
            other.run(replace(EXHAUSTIVE, max_trials=len(bench.compiler.asked) + 1))

    outcome = bench.run(pause=pause)
    assert other.compiler.asked == [BASELINE.digest]
    assert BASELINE.digest not in bench.compiler.asked
    assert outcome.baselines["A"].candidate == BASELINE
    assert set(complete(bench).values()) == {1}


def abandoned(bench: Bench, candidate: Candidate) -> tuple[Study, int]:
    """Leaves a trial as a worker does that is killed while it compiles."""
    study = bench.store.open_study(KEY)
    optuna_study = optuna.create_study(study_name=KEY.name, storage=bench.optuna, load_if_exists=True)
    number = optuna_study.ask().number
    running = Trial(number=number, candidate=candidate, state=TrialState.RUNNING, stage=Stage.COMPILE)
    bench.store.save_trials(study.id, [running])
    return study, number


def test_the_trial_of_a_killed_worker_is_tried_again_when_its_lease_runs_out() -> None:
    bench = Bench()
    study, number = abandoned(bench, BASELINE)
    hold(bench, f"worker/{study.id}/other/1/a")  # another worker lives
    dead = hold(bench, resource(BASELINE))
    waits = []

    def pause(seconds: float) -> None:
        waits.append(bench.store.trials(study.id)[number].state)
        bench.store.renew(dead, ttl_s=0)

    outcome = bench.run(pause=pause)
    assert waits[0] is TrialState.RUNNING
    assert bench.store.trials(study.id)[number].state is TrialState.INTERRUPTED
    assert bench.study.trials[number].state is OptunaState.FAIL
    assert outcome.proved
    assert complete(bench)[BASELINE.digest] == 1


def test_a_worker_that_comes_alone_picks_up_at_once_what_a_killed_one_left() -> None:
    bench = Bench()
    study, number = abandoned(bench, BASELINE)
    outcome = bench.run(pause=pytest.fail)
    assert bench.store.trials(study.id)[number].state is TrialState.INTERRUPTED
    assert outcome.proved


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_late_result_is_superseded_and_the_worker_goes_on(jobs: int) -> None:
    """The worker stood still for longer than its lease: its trial went back to the queue."""
    bench = Bench()
    late = []

    def fail(candidate: Candidate) -> None:
        if not late:
            (study,) = bench.store.studies()
            (running,) = [t for t in bench.store.trials(study.id) if t.candidate == candidate]
            late.append(running.number)
            bench.store.end_trial(study.id, replace(running, state=TrialState.INTERRUPTED))
            bench.study.tell(running.number, state=OptunaState.FAIL)

    bench.compiler.fail = fail
    outcome = bench.run(jobs=jobs)
    (study,) = bench.store.studies()
    superseded = bench.store.trials(study.id)[late[0]]
    assert superseded.state is TrialState.SUPERSEDED
    assert superseded.predicted_s is not None
    assert complete(bench)[superseded.candidate.digest] == 1
    assert outcome.proved
    assert outcome.trials[0].predicted_s == pytest.approx(best_of_all())


def test_a_candidate_that_aborts_the_compiler_is_tried_twice_over_all_studies() -> None:
    bench = Bench(fail=lambda candidate: ABORT if candidate == BASELINE else None)
    for reserve in range(4):
        outcome = bench.run(replace(EXHAUSTIVE, constraints=Constraints(reserve_hbm_bytes=reserve)))
        assert outcome.missing["A"].endswith("SIGABRT")
    assert bench.compiler.asked.count(BASELINE.digest) == 2
    assert "aborted the compiler 2 times" in outcome.missing["A"]


def test_a_candidate_over_which_workers_vanish_is_not_tried_for_ever() -> None:
    bench = Bench()
    for number in range(MOST_VANISHED):
        assert bench.store.claim(resource(BASELINE), owner=f"gone {number}", ttl_s=0) is not None
    outcome = bench.run()
    assert outcome.missing["A"] == "3 workers vanished while they compiled it; it is not tried again"
    assert BASELINE.digest not in bench.compiler.asked
    assert outcome.trials


def test_a_worker_that_is_told_to_stop_returns_its_work_at_once() -> None:
    bench = Bench()

    def stop(event: Event) -> None:
        if isinstance(event, TrialStarted) and event.trial.number >= 3:
            raise KeyboardInterrupt

    outcome = bench.run(listener=stop)
    assert outcome.interrupted
    (study,) = bench.store.studies()
    states = Counter(t.state for t in bench.store.trials(study.id))
    assert states[TrialState.RUNNING] == 0
    assert bench.store.leases() == []
    assert [task.study_id for task in bench.store.tasks()] == [study.id]
    again = bench.run()
    assert again.proved
    assert bench.store.tasks() == []


def test_a_search_that_joined_ends_when_another_one_closes_the_study() -> None:
    bench = Bench()
    study = bench.store.open_study(KEY)

    def close(event: Event) -> None:
        if isinstance(event, TrialEnded):
            bench.store.close_task(study.id)

    opener = bench.search()
    opener._begin()
    opener._crew.heartbeat.close()
    ticks = itertools.count()
    outcome = bench.run(joined=True, listener=close, clock=lambda: float(next(ticks)))
    assert outcome.stopped == "another search has closed the study"
    assert len(bench.compiler.asked) == 1
    assert not bench.store.open_study(KEY).proved


def test_one_worker_writes_what_the_screen_rejects_and_another_takes_over() -> None:
    bench = Bench(weight_bytes=40 << 30)
    study = bench.store.open_study(KEY)
    books = hold(bench, f"study/{study.id}")
    bench.run()
    assert {t.state for t in bench.store.trials(study.id)} == {TrialState.COMPLETE}
    bench.store.release(books)
    outcome = bench.run()
    rejected = [t for t in bench.store.trials(study.id) if t.state is TrialState.REJECTED]
    assert {t.candidate.digest for t in outcome.rejected} == {t.candidate.digest for t in rejected} != set()
    assert len({t.candidate.digest for t in rejected}) == len(rejected)


def test_the_time_of_a_study_is_counted_once() -> None:
    bench = Bench()
    study = bench.store.open_study(KEY)
    books = hold(bench, f"study/{study.id}")
    ticks = iter(range(10_000))
    bench.run(clock=lambda: float(next(ticks)))
    assert bench.store.open_study(KEY).spent_s == 0
    bench.store.release(books)
    bench.run(clock=lambda: float(next(ticks)))
    assert bench.store.open_study(KEY).spent_s > 0


def test_an_optuna_storage_that_fails_for_a_while_costs_no_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tuner.search.ledger._PAUSES_S", (0.0, 0.0))
    bench = Bench()
    original, failures = bench.optuna.set_trial_state_values, [0] * 2 + [1] * 3

    def flaky(trial_id, state, values=None):
        if state is OptunaState.COMPLETE and failures:
            failures.pop()
            raise optuna.exceptions.StorageInternalError("the server went away")
        return original(trial_id, state, values)

    monkeypatch.setattr(bench.optuna, "set_trial_state_values", flaky)
    with caplog.at_level(logging.WARNING):
        outcome = bench.run()
    assert "the Optuna study lacks a result until it is reconciled" in caplog.text
    assert outcome.proved
    values = {t.number: t.value for t in bench.study.trials}
    assert all(values[t.number] == t.predicted_s for t in outcome.trials)


def test_a_program_that_another_worker_compiles_is_waited_for() -> None:
    """Two candidates that lower to one program, at two workers."""
    bench = Bench(lowered=lambda candidate: "same")
    first, second = legal()[:2]
    waits: list[int] = []
    (compiled,) = [FakeCompiler(lowered=bench.compiler.lowered).compile(SUBJECT.spec, SLICE, first)]
    lease: list[Lease] = []

    def pause(seconds: float) -> None:
        waits.append(1)
        assert compiled is not None
        bench.store.save_compiled(SUBJECT.key(first), "same", compiled)

    from tuner.heartbeat import Heartbeat
    from tuner.search.cache import CachedCompiler, _program_resource

    lease.append(hold(bench, _program_resource("same", SUBJECT.key(first))))
    with Heartbeat(bench.store) as heartbeat:
        cached = CachedCompiler(bench.compiler, bench.store, SUBJECT, heartbeat=heartbeat, pause=pause)
        outcome, known = cached.compile(second)
    assert known
    assert outcome == replace(compiled, cached=True)  # type: ignore[type-var]
    assert waits == [1]
    assert bench.compiler.asked == []


def test_screens_that_another_worker_makes_are_waited_for() -> None:
    bench = Bench()
    key = SUBJECT.key(BASELINE)
    lease = hold(bench, f"screen/{key.digest}")
    ((_, screened),) = bench.screener.screen(SUBJECT.spec, SLICE, [BASELINE])
    bench.screener.asked.clear()

    def pause(seconds: float) -> None:
        bench.store.save_screened({key: screened})
        bench.store.release(lease)

    outcome = bench.run(pause=pause)
    assert BASELINE.digest not in bench.screener.asked
    assert outcome.proved


def test_what_a_killed_worker_asked_optuna_for_ends_though_others_are_there() -> None:
    """It was killed before it wrote what it had asked for; another worker is at the study."""
    bench = Bench()
    study = bench.store.open_study(KEY)
    hold(bench, f"worker/{study.id}/other/1/a")
    optuna_study = optuna.create_study(study_name=KEY.name, storage=bench.optuna)
    optuna_study.ask().set_user_attr("candidate", BASELINE.digest)
    optuna_study.ask()  # this one may be the other worker's
    bench.run()
    states = [t.state for t in bench.study.trials]
    assert states[:2] == [OptunaState.FAIL, OptunaState.RUNNING]
    assert all(state.is_finished() for state in states[2:])
    bench.run(lease_ttl_s=1e-3)  # longer ago than any worker holds anything
    assert all(trial.state.is_finished() for trial in bench.study.trials)


def test_who_leaves_because_a_study_has_closed_keeps_its_proof() -> None:
    bench = Bench()
    assert bench.run().proved
    bench.run(joined=True)
    assert bench.store.open_study(KEY).proved
