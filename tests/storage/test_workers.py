"""Workers as processes, through the path that `meshwright worker` takes, with stubs for screens and compiles."""

from __future__ import annotations

import signal
import time

import storage
from benchmarks import stub_study
from benchmarks.workers import Fleet, crowd, kill
from tuner.stores import TrialState


def test_a_crowd_tries_every_candidate_once_and_sees_no_error(url: str) -> None:
    report = crowd(url, workers=5, trials=8, timeout_s=200)
    assert report.faults == ()
    assert report.trials == 40


def test_killed_workers_lose_no_trial_and_no_plan(url: str) -> None:
    report = kill(
        url, workers=4, seconds=8, every_s=1, studies=2, candidates=24, compile_s=0.3, lease_ttl_s=8.0, timeout_s=200
    )
    assert report.faults == ()
    assert report.trials == 48
    assert report.killed > 0


def test_a_preempted_worker_returns_its_work_at_once(sqlite_url: str) -> None:
    with storage.open_store(sqlite_url) as store:
        study = stub_study.publish(store, candidates=4)
        fleet = Fleet(sqlite_url, compile_s=600, lease_ttl_s=600)
        (process,) = fleet.start(1)
        try:
            running = wait_for(lambda: store.trials(study, state=TrialState.RUNNING))
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: store.trials(study, state=TrialState.INTERRUPTED))
            wait_for(lambda: store.leases() == [])
        finally:
            process.kill()
            process.communicate()
        assert [trial.number for trial in store.trials(study)] == [trial.number for trial in running]
        assert [task.study_id for task in store.tasks()] == [study]


def wait_for(look):
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
