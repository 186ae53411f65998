"""Many workers at one database: every trial there once, no error seen, with and without workers that are killed.

    python -m benchmarks.workers crowd URL [--workers 16] [--trials 40]
    python -m benchmarks.workers kill URL [--workers 16] [--seconds 60] [--every 2] [--studies 4] [--candidates 100]

The workers are processes of the real worker path over `benchmarks.stub_study`. The database must be new.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import optuna

import storage
from adapters.cli.worker import stop
from adapters.worker import compiles_with, searching
from benchmarks import stub_study
from storage import migrations
from tuner.plans.plan import PlanState
from tuner.search.worker import Worker
from tuner.stores import Store, TrialState

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run left behind; `faults` is empty if it is in order."""

    trials: int
    interrupted: int
    seconds: float
    killed: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "in order" if not self.faults else "; ".join(self.faults[:10])
        return (
            f"{self.trials} trials complete in {self.seconds:.1f} s ({self.trials / self.seconds:.0f} a second), "
            f"{self.killed} workers killed, {self.interrupted} trials tried again: {verdict}"
        )


def serve(url: str, *, compile_s: float, lease_ttl_s: float) -> None:
    """Is one worker, until no study is open."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, stop)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with storage.open_store(url) as store:
        search = searching(
            store,
            storage.optuna_storage(url),
            toolchain=stub_study.TOOLCHAIN,
            resolve=stub_study.resolve,
            screener=stub_study.StubScreener(),
            compiler=stub_study.StubCompiler(seconds=compile_s),
            lease_ttl_s=lease_ttl_s,
        )
        with contextlib.suppress(KeyboardInterrupt):
            Worker(store, search, fits=compiles_with(stub_study.TOOLCHAIN), once=True).run()


class Fleet:
    """Worker processes; `errors` are of those that ended by themselves."""

    def __init__(self, url: str, *, compile_s: float, lease_ttl_s: float) -> None:
        self._command = [sys.executable, "-m", "benchmarks.workers", "serve", url]
        self._command += ["--compile", str(compile_s), "--ttl", str(lease_ttl_s)]
        self._living: list[subprocess.Popen[str]] = []
        self.errors: list[str] = []
        self.killed = 0

    def start(self, count: int) -> list[subprocess.Popen[str]]:
        # One thread each for linear algebra: there are more workers than processors.
        environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        started = [
            subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            for _ in range(count)
        ]
        self._living += started
        return started

    def kill_one(self, dice: random.Random) -> None:
        alive = [process for process in self._living if process.poll() is None]
        if alive:
            victim = dice.choice(alive)
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            self._living.remove(victim)
            self.killed += 1

    def join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for process in self._living:
            try:
                _, error = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                _, error = process.communicate()
                error += "\nstill at work when time was up"
            if process.returncode or error:
                self.errors.append(f"exit code {process.returncode}: {error[-2000:]}")


def crowd(
    url: str, *, workers: int = 16, trials: int = 40, compile_s: float = 0.02, timeout_s: float = 900.0
) -> Report:
    """Runs workers on one study with so many candidates for each of them."""
    migrations.init(url)
    with storage.open_store(url) as store:
        study = stub_study.publish(store, candidates=workers * trials)
        fleet = Fleet(url, compile_s=compile_s, lease_ttl_s=60.0)
        started = time.monotonic()
        fleet.start(workers)
        fleet.join(timeout_s)
        return _report(store, url, {study: workers * trials}, fleet, time.monotonic() - started)


def kill(
    url: str,
    *,
    workers: int = 16,
    seconds: float = 60.0,
    every_s: float = 2.0,
    studies: int = 4,
    candidates: int = 100,
    compile_s: float = 0.5,
    lease_ttl_s: float = 10.0,
    seed: int = 0,
    timeout_s: float = 900.0,
) -> Report:
    """Kills a random worker again and again while several studies are searched, each time starting another one."""
    migrations.init(url)
    dice = random.Random(seed)
    with storage.open_store(url) as store:
        wanted = {
            stub_study.publish(store, candidates=candidates, shape=f"{number + 1}x1x1"): candidates
            for number in range(studies)
        }
        fleet = Fleet(url, compile_s=compile_s, lease_ttl_s=lease_ttl_s)
        started = time.monotonic()
        fleet.start(workers)
        while time.monotonic() - started < seconds:
            time.sleep(every_s)
            fleet.kill_one(dice)
            fleet.start(1)
        fleet.join(timeout_s)
        return _report(store, url, wanted, fleet, time.monotonic() - started)


def _report(store: Store, url: str, wanted: dict[int, int], fleet: Fleet, seconds: float) -> Report:
    faults, complete, interrupted = list(fleet.errors), 0, 0
    optuna_storage = storage.optuna_storage(url)
    for study in store.studies():
        name = f"study {study.id}"
        trials = store.trials(study.id)
        states = Counter(trial.state for trial in trials)
        done = Counter(trial.candidate.digest for trial in trials if trial.state is TrialState.COMPLETE)
        complete, interrupted = complete + len(done), interrupted + states[TrialState.INTERRUPTED]
        if len(done) != wanted[study.id] or set(done.values()) != {1}:
            twice = sum(count > 1 for count in done.values())
            faults.append(f"{name}: {len(done)} of {wanted[study.id]} candidates complete, {twice} more than once")
        others = set(states) - {TrialState.COMPLETE, TrialState.INTERRUPTED, TrialState.SUPERSEDED}
        if others or (states[TrialState.INTERRUPTED] and not fleet.killed):
            faults.append(f"{name}: trials in state {dict(states)}")
        if study.key.name not in optuna.get_all_study_names(optuna_storage):
            faults.append(f"{name}: no worker opened it in Optuna")
            continue
        theirs = {t.number: t for t in optuna.load_study(study_name=study.key.name, storage=optuna_storage).trials}
        for trial in trials:
            if trial.state is TrialState.COMPLETE and theirs[trial.number].value != trial.predicted_s:
                faults.append(f"{name}: trial {trial.number} has another result in Optuna")
        if [t.number for t in theirs.values() if not t.state.is_finished()]:
            faults.append(f"{name}: Optuna has trials that never ended")
        if not study.proved:
            faults.append(f"{name}: not proved")
        plans = [p for p in store.plans(active_only=False) if p.plan.study == study.key.name]
        best = min((t.predicted_s for t in trials if t.predicted_s is not None), default=None)
        if [p.plan.step_s for p in plans if p.state is PlanState.ACTIVE] != [best]:
            faults.append(f"{name}: its active plan is not the best trial, among {len(plans)} versions")
    if store.tasks():
        faults.append("a study is still open")
    return Report(trials=complete, interrupted=interrupted, seconds=seconds, killed=fleet.killed, faults=tuple(faults))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("what", choices=["crowd", "kill", "serve"])
    parser.add_argument("url")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--studies", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--compile", type=float, default=0.02)
    parser.add_argument("--ttl", type=float, default=60.0)
    arguments = parser.parse_args()
    match arguments.what:
        case "serve":
            serve(arguments.url, compile_s=arguments.compile, lease_ttl_s=arguments.ttl)
        case "crowd":
            print(crowd(arguments.url, workers=arguments.workers, trials=arguments.trials))
        case "kill":
            print(
                kill(
                    arguments.url,
                    workers=arguments.workers,
                    seconds=arguments.seconds,
                    every_s=arguments.every,
                    studies=arguments.studies,
                    candidates=arguments.candidates,
                )
            )


if __name__ == "__main__":
    main()
