"""Whole steps as rows for a fit: what searches timed, and what services reported from production."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.calibration.observation import Observation, Origin
from tuner.measurements import Measurement, Source
from tuner.plans.programs import program_of, program_of_trial
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled
from tuner.stores import Store, Study

STEP = "step"
_ORIGINS = {Source.TRIAL: Origin.TRIAL, Source.PRODUCTION: Origin.PRODUCTION}


def rows(store: Store, generation: str, toolchain: Toolchain) -> list[Observation]:
    """Returns every row that constants of a generation and toolchain are fitted to.

    These are the observations of benchmarks, and the measurements whose compiled program the database still holds.
    """
    return [*store.observations(generation, toolchain), *steps(store, generation, toolchain)]


def steps(store: Store, generation: str, toolchain: Toolchain) -> list[Observation]:
    """Returns the measured steps of a generation and toolchain, oldest first; those without a program are left out."""
    taken = [
        measurement
        for measurement in reversed(store.measurements())
        if measurement.slice.generation_name == generation and measurement.toolchain.digest == toolchain.digest
    ]
    studies = {study.key.name: study for study in store.studies()} if taken else {}
    found = [_step(store, studies, measurement) for measurement in taken]
    return [step for step in found if step is not None]


def _step(store: Store, studies: dict[str, Study], measurement: Measurement) -> Observation | None:
    compiled, links = _program(store, studies, measurement)
    if compiled is None or measurement.observed_at is None:
        return None
    return Observation(
        what=STEP,
        name=f"{measurement.workload.name}, {measurement.candidate.layout}",
        slice=measurement.slice,
        program=compiled.program,
        placement=measurement.placement,
        links=tuple(links),
        samples_s=measurement.samples_s or (measurement.step_s,),
        origin=_ORIGINS[measurement.source],
        device_kind=measurement.device_kind,
        host=measurement.host,
        toolchain=measurement.toolchain,
        observed_at=measurement.observed_at,
    )


def _program(
    store: Store, studies: dict[str, Study], measurement: Measurement
) -> tuple[Compiled | None, Sequence[str]]:
    """Returns the program that was timed, and the links that were slow."""
    if measurement.plan_id is not None:
        plan = store.plan(measurement.plan_id).plan
        return program_of(store, plan), plan.constraints.links
    study = studies.get(measurement.study)
    if study is None:
        return None, ()
    trials = store.trials(study.id, after=measurement.trial - 1, limit=1)
    trial = next((each for each in trials if each.number == measurement.trial), None)
    if trial is None:
        return None, ()
    return program_of_trial(store, trial, measurement.slice, measurement.toolchain), study.key.constraints.links
