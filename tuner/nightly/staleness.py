"""Whether an entry is due, and why: what is missing, unfinished, made by another compiler or model, or old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tuner.plans.plan import Evidence, Plan, StoredPlan
from tuner.slices.slice import Slice
from tuner.stores import Study, StudyKey
from tuner.units import spell_seconds


class Due(StrEnum):
    """Why an entry is searched, in the order of urgency. Values are stored: only add, never remove."""

    UNFINISHED = "unfinished"  # a search was cut off, by a crash, a stop or its budget
    MISSING = "missing"  # nobody has a plan for it
    STALE = "stale"  # there is a plan, made by another toolchain
    OUTDATED = "outdated"  # the plan is of another revision of the space or of the model
    UNMEASURED = "unmeasured"  # devices are here, and the plan's evidence is a prediction
    AGED = "aged"  # the last search is older than `refresh`
    FRESH = "fresh"  # it is not due


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last time that a night searched an entry.

    Attributes:
        finished: whether the search came to its end.
        at: when it stopped.
        measured: whether devices were used. What they say need not end in a measured plan: the one in service may stay.
    """

    finished: bool
    at: datetime
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an entry stands before a night.

    Attributes:
        due: why it is searched, or `Due.FRESH`.
        reason: the same in one sentence.
        active: the plan in service under this toolchain.
        former: the newest plan in service under another toolchain; re-checked if there is no `active`.
        last: the last attempt.
    """

    due: Due
    reason: str
    active: StoredPlan | None = None
    former: StoredPlan | None = None
    last: Attempt | None = None

    @property
    def to_recheck(self) -> StoredPlan | None:
        """The plan whose decision is compiled again before a search: made by another toolchain, with none by this."""
        return self.former if self.active is None else None


def standing(
    key: StudyKey,
    *,
    study: Study | None,
    plans: Sequence[StoredPlan],
    last: Attempt | None,
    now: datetime,
    budget_s: float,
    refresh_s: float | None = None,
    measurable: bool = False,
) -> Standing:
    """Returns where an entry stands.

    Args:
        key: of the study that a search of it would be.
        study: that study, if it is there.
        plans: active plans of the model, newest first.
        last: the last attempt at this very study.
        now: the time.
        budget_s: of the entry; a search that nobody recorded and that took as long is taken to be finished.
        refresh_s: see `Matrix`.
        measurable: whether this host can and may measure it.
    """
    same = [stored for stored in plans if _subject(stored.plan) == _subject(key)]
    active = next((stored for stored in same if stored.plan.toolchain.digest == key.toolchain.digest), None)
    former = next((stored for stored in same if stored.plan.toolchain.digest != key.toolchain.digest), None)

    def found(due: Due, reason: str) -> Standing:
        return Standing(due=due, reason=reason, active=active, former=former, last=last)

    begun = study is not None and bool(study.counts)
    if last is not None and not last.finished:
        return found(Due.UNFINISHED, f"the search of {last.at:%Y-%m-%d %H:%M} UTC did not come to its end")
    if begun and study is not None and not _finished(study, last, budget_s):
        return found(Due.UNFINISHED, f"a search of {spell_seconds(study.spent_s)} is not known to have ended")
    if active is None and not begun:
        if former is None:
            return found(Due.MISSING, "there is no plan")
        changes = former.plan.toolchain.fingerprint.differences(key.toolchain.fingerprint)
        return found(Due.STALE, f"plan {former.id} is of another toolchain: {'; '.join(changes)}")
    if not begun:
        return found(Due.OUTDATED, "the space or the model has another revision than the plan's")
    ended = last.at if last is not None else active.stored_at if active is not None else None
    if refresh_s is not None and ended is not None and (now - ended).total_seconds() > refresh_s:
        return found(Due.AGED, f"the last search ended on {ended:%Y-%m-%d}, more than {spell_seconds(refresh_s)} ago")
    tried = last is not None and last.measured
    if measurable and not tried and active is not None and active.plan.evidence is not Evidence.MEASURED:
        return found(Due.UNMEASURED, f"plan {active.id} is {active.plan.evidence}, and its devices are here")
    if active is None:
        return found(Due.FRESH, "no layout runs, as an earlier search found out")
    how = "proved" if study is not None and study.proved else "searched"
    return found(Due.FRESH, f"plan {active.id} was {how} with this toolchain and model")


def _finished(study: Study, last: Attempt | None, budget_s: float) -> bool:
    return study.proved or last is not None or study.spent_s >= budget_s


def _subject(like: StudyKey | Plan) -> tuple[str, Slice, str]:
    """Returns what a plan and a study must share, whatever the toolchain."""
    return like.workload.digest, like.slice, like.constraints.digest
