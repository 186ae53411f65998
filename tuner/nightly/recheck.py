"""What a new compiler made of an old plan: its decision before, in its own placement, and in the best one."""

from __future__ import annotations

import math

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.calibration.records import constants
from tuner.network.cost import Degraded
from tuner.nightly.report import Recheck
from tuner.plans.plan import Evidence, Plan, StoredPlan
from tuner.plans.programs import program_of, program_of_trial
from tuner.ports import Compiled
from tuner.search.outcome import Outcome
from tuner.stores import Store, StudyKey
from tuner.timeline.ranker import Ranker


def compare(store: Store, former: StoredPlan, key: StudyKey, outcome: Outcome) -> Recheck:
    """Returns how a former plan's decision does under the toolchain of `key`.

    Args:
        store: with the compiled programs; the former one may be gone.
        former: the plan.
        key: of the study in which it was tried again.
        outcome: of that try.
    """
    plan = former.plan
    trial = next((t for t in outcome.trials if t.candidate == plan.candidate), None)
    ended = next((t for t in outcome.rejected if t.candidate == plan.candidate), None)
    reason = ended.rejection.detail if ended is not None and ended.rejection is not None else ""
    new = None if trial is None else program_of_trial(store, trial, key.slice, key.toolchain)
    known = constants(store, key.slice.generation_name, key.toolchain)
    before_s, restated = _before_s(store, plan, known)
    return Recheck(
        plan_id=former.id,
        toolchain=str(plan.toolchain),
        changes=plan.toolchain.fingerprint.differences(key.toolchain.fingerprint),
        before_s=before_s,
        restated=restated,
        kept_s=None if new is None else _step_s(new, plan, known),
        after_s=None if trial is None else trial.predicted_s,
        reason=reason or ("" if trial is not None else "it was not compiled"),
    )


def refused(former: StoredPlan, key: StudyKey, reason: str) -> Recheck:
    """Returns the re-check of a former plan that ended in an error."""
    plan = former.plan
    return Recheck(
        plan_id=former.id,
        toolchain=str(plan.toolchain),
        changes=plan.toolchain.fingerprint.differences(key.toolchain.fingerprint),
        before_s=plan.step_s,
        restated=False,
        kept_s=None,
        after_s=None,
        reason=reason,
    )


def _before_s(store: Store, plan: Plan, known: Calibration) -> tuple[float, bool]:
    """Returns the predicted step under the former compiler, and whether it is by today's model."""
    old = program_of(store, plan)
    today_s = None if old is None else _step_s(old, plan, known)
    if today_s is not None:
        return today_s, True
    predicted_s = plan.details.get("step_s") if plan.evidence is not Evidence.PREDICTED else None
    return plan.step_s if predicted_s is None else float(predicted_s), False


def _step_s(compiled: Compiled, plan: Plan, known: Calibration) -> float | None:
    """Returns the step of a program in a plan's placement; None if it does not run there."""
    links = tuple(map(Degraded.parse, plan.constraints.links))
    layout = plan.candidate.layout
    ranker = Ranker(compiled.program, plan.slice, layout, known, links)
    step_s = float(ranker.step_s(np.asarray([plan.placement.devices]))[0])
    return step_s if math.isfinite(step_s) else None
