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
        trials = store.trials(outcome.study.id)
        stored = store.plan(outcome.plan.id).plan
        programs = [store.compiled(_key(outcome, trial)) for trial in outcome.trials]
    assert stored.candidate == outcome.trials[0].candidate
    (routing,) = (t for t in trials if t.rejection is not None and t.rejection.reason is RejectReason.ROUTING)
    assert routing.candidate.layout.size("ring") == 32
    assert routing.stage is Stage.SCREEN
    assert "all-gather over ring in groups of 2" in str(routing.rejection)
    answers = set()
    for trial, compiled in zip(outcome.trials, programs, strict=True):
        assert isinstance(compiled, Compiled)
        assert trial.candidate.placement is not None
        permutes = [
            node
            for node, _ in compiled.program.walk()
            if isinstance(node, Collective) and node.kind is CollectiveKind.COLLECTIVE_PERMUTE
        ]
        ranker = Ranker(compiled.program, SLICE, trial.candidate.layout, calibration("v5e"))
        direct = ranker.direct(np.asarray([trial.candidate.placement.devices]))[0]
        # The compiler starts and ends apart what is direct; what it relays is synchronous.
        assert {node.asynchronous for node in permutes} == {bool(direct.all())}
        answers |= {bool(direct.all())}
    assert answers == {True, False}


def _key(outcome: Outcome, trial: Trial) -> ContentKey:
    key = outcome.study.key
    return ContentKey(
        workload_digest=key.workload.digest,
        slice_name=key.slice.name,
        wrap=key.slice.wrap,
        toolchain_digest=key.toolchain.digest,
        candidate_digest=trial.candidate.digest,
    )
