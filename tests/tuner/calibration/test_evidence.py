"""Whole steps as rows: of trials that searches timed, and of plans that production reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.memory import MemoryStore
from tests.storage.calibration_contract import fit, observation
from tests.storage.measurement_contract import measurement
from tests.storage.samples import NEW, OLD, compiled, content_key, plan, program, study_key, trial
from tests.tuner.search.test_funnel import TOOLCHAIN, Bench
from tuner.calibration.calibration import calibration
from tuner.calibration.evidence import rows, steps
from tuner.calibration.observation import Origin
from tuner.measurements import Source
from tuner.plans.plan import Constraints, Evidence


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    made = plan()
    key = content_key(slice_name=made.slice.name, wrap=made.slice.wrap, toolchain_digest=made.toolchain.digest)
    store.save_compiled(key, "ab" * 32, compiled())
    return store


def test_a_timed_trial_is_a_row_with_its_program_and_placement(store: MemoryStore) -> None:
    study = store.open_study(study_key(evidence=Evidence.MEASURED, constraints=Constraints(links=("0,0:1,0=0.5",))))
    store.save_trials(study.id, [trial(3)])
    timed = measurement(study=study.key.name, trial=3)
    store.save_measurement(timed)
    (step,) = steps(store, "v5e", NEW)
    assert (step.what, step.origin, step.program) == ("step", Origin.TRIAL, program())
    assert (step.placement, step.samples_s, step.links) == (timed.placement, timed.samples_s, ("0,0:1,0=0.5",))
    assert "wan2.1" in step.name


def test_a_report_from_production_is_a_row(store: MemoryStore) -> None:
    study = store.open_study(study_key())
    store.save_trials(study.id, [trial(3)])
    kept = store.promote(plan(study=study.key.name, trial=3))
    reported = measurement(source=Source.PRODUCTION, plan_id=kept.id, study="", trial=-1, samples_s=(), step_s=0.8)
    store.save_measurement(reported)
    (step,) = steps(store, "v5e", NEW)
    assert (step.origin, step.samples_s, step.program) == (Origin.PRODUCTION, (0.8,), program())


def test_what_has_no_program_or_another_compiler_is_left_out(store: MemoryStore) -> None:
    study = store.open_study(study_key())
    store.save_trials(study.id, [trial(3, lowered_digest="")])
    store.save_measurement(measurement(study="gone"))
    store.save_measurement(measurement(study=study.key.name, trial=3))
    store.save_measurement(measurement(study=study.key.name, trial=9))
    assert steps(store, "v5e", NEW) == []
    assert steps(store, "v5e", OLD) == []
    assert steps(store, "v6e", NEW) == []


def test_steps_stand_beside_benchmarks(store: MemoryStore) -> None:
    study = store.open_study(study_key())
    store.save_trials(study.id, [trial(3)])
    store.save_observations([observation()])
    store.save_measurement(measurement(study=study.key.name, trial=3))
    assert [row.what for row in rows(store, "v5e", NEW)] == ["all-reduce", "step"]


def test_a_search_takes_the_fit_in_use_and_is_another_study_by_it() -> None:
    bench = Bench()
    before = bench.search()
    slower = replace(calibration("v5e"), link_efficiency=0.3)
    bench.store.save_fit(fit(calibration=slower, toolchain=TOOLCHAIN, used=False))
    bench.search()
    assert len(bench.store.studies()) == 1
    bench.store.save_fit(fit(calibration=slower, toolchain=TOOLCHAIN))
    after = bench.search()
    assert len(bench.store.studies()) == 2
    # The same programs, predicted anew.
    first, second = (search.run().trials for search in (before, after))
    slowest = [max(trial.predicted_s or 0 for trial in trials) for trials in (first, second)]
    assert slowest[1] > 1.1 * slowest[0]
