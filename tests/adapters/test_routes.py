"""A whole search against the live compiler, on a v5e slice where routing is limited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import storage
from adapters.search import tune
from tests.adapters.jax.workloads import ROTATING
from tuner.calibration.calibration import calibration
from tuner.ports import Compiled
from tuner.program.program import Collective, CollectiveKind
from tuner.rejections import RejectReason, Stage
from tuner.search.outcome import Outcome
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice
from tuner.stores import ContentKey, Trial
from tuner.timeline.ranker import Ranker

pytestmark = pytest.mark.compiler

SLICE = parse_slice("v5e-4x8")


def test_large_v5e_slices_are_compiled_class_by_class(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    settings = Settings(budget_s=None, patience=None, slack=None)
    outcome = tune(spec=ROTATING.spec, slice_name="v5e-4x8", db=url, settings=settings, jobs=1)
    assert outcome.plan is not None
    assert {trial.candidate.layout.size("ring") for trial in outcome.trials} == {4}
    assert all(trial.candidate.placement is not None for trial in outcome.trials)
    with storage.open_store(url) as store:
        trials = store.trials(outcome.study.id)
        stored = store.plan(outcome.plan.id).plan
        programs = [store.compiled_program(trial.lowered_digest, _key(outcome, trial)) for trial in outcome.trials]
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
