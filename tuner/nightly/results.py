"""From the outcome of a search to what a night's report says of an entry."""

from __future__ import annotations

from typing import Any

from tuner.nightly.matrix import Entry
from tuner.nightly.order import Task
from tuner.nightly.report import Ending, EntryReport
from tuner.nightly.staleness import Due
from tuner.plans.plan import StoredPlan
from tuner.rejections import Stage
from tuner.search.outcome import Outcome


def untouched(task: Task) -> EntryReport:
    """Returns what is to be said of an entry if the night does nothing about it."""
    found = task.standing
    fresh = found.due is Due.FRESH
    return EntryReport(
        name=task.entry.name,
        study=task.key.digest,
        priority=task.entry.priority,
        due=found.due,
        why=found.reason,
        ending=Ending.FRESH if fresh else Ending.NO_TIME,
        detail="" if fresh else "the night ended before its turn",
        finished=fresh,
        **in_service(found.active),
        plan_before=None if found.active is None else found.active.id,
        before_s=None if found.active is None else found.active.plan.step_s,
    )


def in_service(stored: StoredPlan | None) -> dict[str, Any]:
    """Returns the fields of a report about the plan in service."""
    if stored is None:
        return {}
    return {"plan_after": stored.id, "after_s": stored.plan.step_s, "evidence": stored.plan.evidence.value}


def comparable_s(active: StoredPlan | None, now: StoredPlan | None) -> float | None:
    """Returns the step of the plan that was in service, if that of the one that is now is of the same evidence."""
    if active is None or now is None or active.plan.evidence is not now.plan.evidence:
        return None
    return active.plan.step_s


def how_it_ended(report: EntryReport, outcome: Outcome) -> Ending:
    """Returns how an entry ended; `report` says which plan was in service before."""
    if outcome.interrupted:
        return Ending.INTERRUPTED
    if outcome.plan is None:
        return Ending.IMPOSSIBLE
    return Ending.PROMOTED if outcome.plan.id != report.plan_before else Ending.KEPT


def is_finished(outcome: Outcome, entry: Entry) -> bool:
    """Returns whether another night would find nothing more: the search ended, or it may compile no more."""
    tried = (*outcome.trials, *outcome.rejected)
    compiled = sum(trial.stage in (Stage.COMPILE, Stage.PLACE, Stage.MEASURE) for trial in tried)
    full = entry.max_trials is not None and compiled >= entry.max_trials
    return not outcome.interrupted and (full or not outcome.exhausted)


def what_ended_it(outcome: Outcome) -> str:
    """Returns why a search ended, or what the nearest layout lacks if none runs."""
    nearest = next((trial for trial in outcome.rejected if trial.rejection is not None), None)
    if outcome.plan is None and nearest is not None and nearest.rejection is not None:
        return f"the nearest is {nearest.candidate.layout}: {nearest.rejection.detail}"
    return outcome.stopped
