"""The whole path on real input: a user's workload, the real screen, the real compiler, a real database."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

import storage
from adapters.jax.apply import apply
from adapters.jax.topologies import topology
from adapters.search import tune
from tuner.errors import StoreError
from tuner.plans.lookup import Query, Rung
from tuner.plans.toolchain import installed_toolchain
from tuner.ports import WorkloadSpec
from tuner.search.events import Event, TrialEnded
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice

SPEC = WorkloadSpec(model="examples.block:workload")
pytestmark = pytest.mark.compiler


def test_from_a_workload_and_a_slice_to_a_stored_plan_that_applies(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    events: list[Event] = []
    settings = Settings(budget_s=None, patience=None, slack=None)
    outcome = tune(spec=SPEC, slice_name="v5e-2x2", db=url, settings=settings, listener=events.append, jobs=2)
    assert outcome.plan is not None
    assert outcome.proved
    assert set(outcome.baselines) == {"A", "B"}
    plan = outcome.plan.plan
    assert plan.step_s == min(trial.predicted_s or 1 for trial in outcome.trials)
    assert plan.speedup("A") is not None
    assert {argument.path.split("/")[-1] for argument in plan.arguments} >= {"q", "k", "v", "o", "up", "down"}

    # A second run looks at nothing and compiles nothing.
    events.clear()
    again = tune(spec=SPEC, slice_name="v5e-2x2", db=url, settings=settings, listener=events.append)
    assert not [event for event in events if isinstance(event, TrialEnded)]
    assert again.plan == outcome.plan

    # A deploy finds it and puts it on devices in any order.
    with storage.open_store(url) as store:
        answer = store.lookup(Query(model="block", shape="", slice_name="v5e-2x2", toolchain=installed_toolchain()))
    assert answer.rung is Rung.EXACT
    assert answer.plan == outcome.plan
    slice_ = parse_slice("v5e-2x2")
    devices = list(topology(slice_).devices)
    random.Random(1).shuffle(devices)
    live = apply(answer.plan, devices)
    placed = [slice_.device(device.coords[:2]) for device in live.mesh.devices.flat]
    assert placed == list(plan.placement.devices)
    assert set(live.shardings) == {argument.path for argument in plan.arguments}


def test_a_search_that_is_killed_goes_on_from_what_it_had_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    command = "from adapters.cli.main import main; main()"
    arguments = ("tune", SPEC.model, "--slice", "v5e-2x2", "--exhaustive", "--jobs", "1", "--quiet", "--db", url)
    process = subprocess.Popen([sys.executable, "-c", command, *arguments], env={**os.environ, "HOME": str(tmp_path)})
    found = ()
    deadline = time.monotonic() + 120
    while not found and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.5)
        found = _complete(url)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert found

    events: list[Event] = []
    settings = Settings(budget_s=None, patience=None, slack=None, max_trials=len(found) + 2)
    outcome = tune(spec=SPEC, slice_name="v5e-2x2", db=url, settings=settings, listener=events.append, jobs=1)
    assert len(_complete(url)) > len(found)
    assert set(found) <= set(_complete(url))
    again = {event.trial.candidate.digest for event in events if isinstance(event, TrialEnded) and not event.cached}
    assert not again & {digest for _, digest, _ in found}
    study = optuna.load_study(study_name=outcome.study.key.name, storage=storage.optuna_storage(url))
    assert not [trial for trial in study.trials if trial.state is optuna.trial.TrialState.RUNNING]


def test_a_terminated_search_keeps_what_it_found_and_waits_for_no_compile(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    command = "from adapters.cli.main import main; main()"
    arguments = ("tune", SPEC.model, "--slice", "v5e-2x4", "--exhaustive", "--jobs", "1", "--db", url)
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    try:
        assert process.stderr is not None
        assert any(line.startswith("compile") for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert time.monotonic() - told < 30
    assert "it was told to stop" in output
    with storage.open_store(url) as store:
        (study,) = store.studies()
        states = {trial.state.value for trial in store.trials(study.id)}
        assert "complete" in states
        assert "running" not in states
        assert len(store.plans()) == 1


def _complete(url: str) -> tuple[tuple[int, str, float], ...]:
    """Returns number, candidate and prediction of the trials that are complete; none while there is no database."""
    try:
        with storage.open_store(url) as store:
            trials = [trial for study in store.studies() for trial in store.trials(study.id)]
    except StoreError:
        return ()
    return tuple((t.number, t.candidate.digest, t.predicted_s) for t in trials if t.predicted_s is not None)
