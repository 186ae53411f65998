"""From a stored plan back to the trial that it came from and to its compiled program."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.plans.plan import Plan
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled
from tuner.slices.slice import Slice
from tuner.stores import ContentKey, Store, Trial, TrialStore


def study_trials(store: TrialStore, plan: Plan) -> Sequence[Trial]:
    """Returns every trial of the study that a plan came from; none if this database does not hold it."""
    study = next((study for study in store.studies() if study.key.name == plan.study), None)
    return () if study is None else store.trials(study.id)


def trial_of(store: TrialStore, plan: Plan) -> Trial | None:
    """Returns the trial of a plan, or None if this database does not hold it."""
    for study in store.studies():
        if study.key.name == plan.study:
            found = store.trials(study.id, after=plan.trial - 1, limit=1)
            return next((trial for trial in found if trial.number == plan.trial), None)
    return None


def program_of(store: Store, plan: Plan) -> Compiled | None:
    """Returns the compiled program of a plan, or None if this database does not hold it."""
    trial = trial_of(store, plan)
    return None if trial is None else program_of_trial(store, trial, plan.slice, plan.toolchain)


def program_of_trial(store: Store, trial: Trial, slice_: Slice, toolchain: Toolchain) -> Compiled | None:
    """Returns what the compiler made of a trial on its slice with its toolchain, or None if it is not there."""
    if not trial.lowered_digest:
        return None
    key = ContentKey(  # the lowered program stands for the workload and the candidate
        workload_digest="",
        slice_name=slice_.name,
        wrap=slice_.wrap,
        toolchain_digest=toolchain.digest,
        candidate_digest="",
    )
    found = store.compiled_program(trial.lowered_digest, key)
    return found if isinstance(found, Compiled) else None
