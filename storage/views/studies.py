"""Studies: the list of them, and one study's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import aliased

from storage.schema import RefusalRow, StudyRow, TrialRow
from storage.sql.database import Database
from storage.sql.studies import study_of
from storage.views.paging import PAGE, Cursor, Page, Sort, find_keys
from storage.views.view import contains, short
from tuner.errors import InvalidValue
from tuner.plans.plan import Evidence
from tuner.rejections import RejectReason, Stage
from tuner.stores import Study, TrialState

SORTS: dict[str, Any] = {
    "id": StudyRow.id,
    "name": StudyRow.name,
    "slice": StudyRow.slice_name,
    "spent": StudyRow.spent_s,
}
"""What studies may be sorted by; the id is in order of their beginning."""

NEWEST_FIRST = Sort(name="id", descending=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """A study in a list.

    Attributes:
        trials: one more than the largest number of its trials.
        running: trials that run now, or whose process was cut off.
        best_s: the smallest predicted step time; None if nothing was predicted.
        spent_s: of all its runs.
        toolchain: as people read it, cut short.
    """

    id: int
    model: str
    shape: str
    variant: str
    slice_name: str
    evidence: Evidence
    toolchain: str
    proved: bool
    trials: int
    running: int
    best_s: float | None
    spent_s: float
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """How many trials of a study stand at one point of the funnel."""

    state: TrialState
    stage: Stage
    reject_stage: Stage | None
    reject_reason: RejectReason | None
    trials: int
    predicted: int
    measured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCounts:
    """One study, counted.

    Attributes:
        study: with its trials by state.
        changes: grows with every write to its trials: the revision of the study.
        refusals: layouts that enumeration refused, by reason, most first.
        counts: its trials by where they stand, most first.
    """

    study: Study
    changes: int
    refusals: tuple[tuple[str, int], ...]
    counts: tuple[TrialCount, ...]

    @property
    def trials(self) -> int:
        """All of them."""
        return sum(count.trials for count in self.counts)

    def reached(self, *stages: Stage) -> int:
        """Returns how many trials entered one of some stages last."""
        return sum(count.trials for count in self.counts if count.stage in stages)

    def in_state(self, state: str) -> int:
        """Returns how many trials are in a state."""
        return self.study.counts.get(str(state), 0)

    def rejected(self, stage: Stage) -> list[tuple[str, int]]:
        """Returns (reason, trials) of those that a stage rejected, most first."""
        out: dict[str, int] = {}
        for count in self.counts:
            if count.state is TrialState.REJECTED and (count.reject_stage or count.stage) is stage:
                reason = "no reason stored" if count.reject_reason is None else count.reject_reason.value
                out[reason] = out.get(reason, 0) + count.trials
        return sorted(out.items(), key=lambda item: (-item[1], item[0]))


def list_studies(
    database: Database,
    *,
    text: str = "",
    sort: Sort = NEWEST_FIRST,
    cursor: Cursor | None = None,
    limit: int = PAGE,
) -> Page[StudyLine]:
    """Returns one page of studies whose name holds a text. Raises InvalidValue on an unknown sort or cursor."""
    if sort.name not in SORTS:
        raise InvalidValue(f"studies are not sorted by {sort.name!r}; legal: {', '.join(SORTS)}")
    conditions = [contains(text, StudyRow.name)] if text else []
    with database.read() as session:
        found = find_keys(
            session,
            StudyRow.id,
            SORTS[sort.name],
            conditions=conditions,
            descending=sort.descending,
            cursor=cursor,
            limit=limit,
        )
        matching = session.scalar(select(func.count()).select_from(StudyRow).where(*conditions))
        of_study = TrialRow.study_id == StudyRow.id
        rows = session.execute(
            select(
                StudyRow.id,
                short(StudyRow.model),
                short(StudyRow.shape),
                short(StudyRow.variant),
                StudyRow.slice_name,
                StudyRow.evidence,
                StudyRow.key["toolchain"],
                StudyRow.proved,
                # Each of these is one step into an index, however many trials there are.
                select(func.max(TrialRow.number)).where(of_study).scalar_subquery(),
                select(func.count()).where(of_study, TrialRow.state == TrialState.RUNNING).scalar_subquery(),
                select(func.min(TrialRow.predicted_s)).where(of_study).scalar_subquery(),
                StudyRow.spent_s,
                StudyRow.created_at,
            ).where(StudyRow.id.in_(found.keys))
        )
        lines = {row[0]: _line(*row) for row in rows}
        return found.page([lines[key] for key in found.keys if key in lines], matching)


def running_studies(database: Database, limit: int = 20) -> Sequence[tuple[int, str, int]]:
    """Returns (id, name, running trials) of the newest studies with running trials, in one statement."""
    running = (
        select(func.count())
        .where(TrialRow.study_id == StudyRow.id, TrialRow.state == TrialState.RUNNING)
        .scalar_subquery()
    )
    wanted = (
        select(StudyRow.id, short(StudyRow.name), running).where(running > 0).order_by(StudyRow.id.desc()).limit(limit)
    )
    with database.read() as session:
        return [(row[0], row[1], row[2]) for row in session.execute(wanted)]


def find_study(database: Database, name: str) -> int | None:
    """Returns the id of the newest study of a name, or None."""
    with database.read() as session:
        return session.scalar(select(func.max(StudyRow.id)).where(StudyRow.name == name))


def head_of(database: Database, study_id: int) -> Study | None:
    """Returns a study without counting its trials, or None if there is none."""
    with database.read() as session:
        row = session.get(StudyRow, study_id)
        return None if row is None else study_of(row, {})


def siblings(database: Database, study_id: int) -> Sequence[tuple[int, Evidence]]:
    """Returns (id, evidence) of the studies that differ from one in nothing but their evidence."""
    same = (
        "workload_digest",
        "slice_name",
        "wrap",
        "toolchain_digest",
        "constraints_digest",
        "space_revision",
    )
    one, other = aliased(StudyRow), aliased(StudyRow)
    wanted = (
        select(other.id, other.evidence)
        .join(one, and_(*(getattr(one, name) == getattr(other, name) for name in same)))
        .where(one.id == study_id, other.id != study_id)
        .order_by(other.id)
        .limit(len(Evidence))
    )
    with database.read() as session:
        return [(row[0], row[1]) for row in session.execute(wanted)]


def count_study(database: Database, study_id: int) -> StudyCounts:
    """Counts one study in three statements, none of which reads a document of a trial.

    Raises KeyError if there is no such study.
    """
    parts = (TrialRow.state, TrialRow.stage, TrialRow.reject_stage, TrialRow.reject_reason)
    with database.read() as session:
        row = session.get(StudyRow, study_id)
        if row is None:
            raise KeyError(f"no study {study_id}")
        found = session.execute(
            select(*parts, func.count(), func.count(TrialRow.predicted_s), func.count(TrialRow.measured_s))
            .where(TrialRow.study_id == study_id)
            .group_by(*parts)
        ).all()
        refusals = session.execute(
            select(RefusalRow.reason, RefusalRow.layouts)
            .where(RefusalRow.study_id == study_id)
            .order_by(RefusalRow.layouts.desc(), RefusalRow.reason)
        ).all()
        by_state: dict[str, int] = {}
        for state, *_, trials, _, _ in found:
            by_state[state.value] = by_state.get(state.value, 0) + trials
        counts = [
            TrialCount(
                state=state,
                stage=stage,
                reject_stage=reject_stage,
                reject_reason=reason,
                trials=trials,
                predicted=predicted,
                measured=measured,
            )
            for state, stage, reject_stage, reason, trials, predicted, measured in found
        ]
        return StudyCounts(
            study=study_of(row, by_state),
            changes=row.changes,
            refusals=tuple((reason, layouts) for reason, layouts in refusals),
            counts=tuple(sorted(counts, key=lambda count: (-count.trials, count.stage, count.state))),
        )


def _line(
    id_: int,
    model: str,
    shape: str,
    variant: str,
    slice_name: str,
    evidence: Evidence,
    toolchain: Any,
    proved: bool,
    last: int | None,
    running: int,
    best_s: float | None,
    spent_s: float,
    created_at: datetime,
) -> StudyLine:
    return StudyLine(
        id=id_,
        model=model,
        shape=shape,
        variant=variant,
        slice_name=slice_name,
        evidence=evidence,
        toolchain=f"jax {toolchain.get('jax', '')}, libtpu {toolchain.get('libtpu', '')}",
        proved=proved,
        trials=0 if last is None else last + 1,
        running=running,
        best_s=best_s,
        spent_s=spent_s,
        created_at=created_at,
    )
