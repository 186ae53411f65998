"""Trials of one study as lists show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from storage.documents import floats
from storage.schema import TrialRow
from storage.sql.database import Database
from storage.views.paging import PAGE, Cursor, Page, Side, Sort, find_keys
from storage.views.view import contains, short
from tuner.errors import InvalidValue
from tuner.plans.plan import Evidence
from tuner.rejections import RejectReason, Stage
from tuner.stores import Trial, TrialState, TrialStore

SORTS: dict[str, Any] = {
    "number": TrialRow.number,
    "bound": TrialRow.bound_s,
    "estimate": TrialRow.estimate_s,
    "predicted": TrialRow.predicted_s,
    "measured": TrialRow.measured_s,
    "exposed": TrialRow.numbers["exposed_s"].as_float(),
    "memory": TrialRow.numbers["memory_bytes"].as_float(),
    "compile": TrialRow.numbers["compile_s"].as_float(),
    "finished": TrialRow.finished_at,
}
"""What trials may be sorted by."""

BEST_FIRST = Sort(name="predicted")


def best_first(evidence: Evidence) -> Sort:
    """Returns the sort that shows the best of a study of that evidence first."""
    return Sort(name="measured") if evidence is Evidence.MEASURED else BEST_FIRST


_SHOWN = ("compute_s", "attention_s", "exposed_s", "memory_bytes", "compile_s", "default_step_s")
_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Which trials of a study are meant; None and an empty text mean all.

    Attributes:
        state, stage, reason: as stored; `stage` is the last stage that a trial entered.
        evidence: the best that there is for a trial's step time.
        text: part of the layout, of the reason's detail or of the host, whatever its case.
    """

    state: TrialState | None = None
    stage: Stage | None = None
    reason: RejectReason | None = None
    evidence: Evidence | None = None
    text: str = ""

    def __bool__(self) -> bool:
        return self != TrialFilter()

    def conditions(self) -> list[ColumnElement[bool]]:
        """Returns what the filter asks of a row."""
        out: list[ColumnElement[bool]] = []
        if self.state is not None:
            out.append(TrialRow.state == self.state)
        if self.stage is not None:
            out.append(TrialRow.stage == self.stage)
        if self.reason is not None:
            out.append(TrialRow.reject_reason == self.reason)
        match self.evidence:
            case Evidence.MEASURED:
                out.append(TrialRow.measured_s.is_not(None))
            case Evidence.PREDICTED:
                out += [TrialRow.measured_s.is_(None), TrialRow.predicted_s.is_not(None)]
            case Evidence.BOUND:
                out += [TrialRow.measured_s.is_(None), TrialRow.predicted_s.is_(None), TrialRow.bound_s.is_not(None)]
        if self.text:
            out.append(contains(self.text, TrialRow.layout, TrialRow.reject_detail, TrialRow.host))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLine:
    """A trial in a list. Texts are cut to `storage.views.view.SHORT` characters and one; `numbers` are a choice."""

    number: int
    state: TrialState
    stage: Stage
    baseline: str
    layout: str
    compiler_options: str
    bound_s: float | None
    estimate_s: float | None
    predicted_s: float | None
    measured_s: float | None
    numbers: Mapping[str, float]
    reject_stage: Stage | None
    reject_reason: RejectReason | None
    reject_detail: str
    host: str
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def evidence(self) -> Evidence | None:
        """The best that there is for the step time."""
        if self.measured_s is not None:
            return Evidence.MEASURED
        if self.predicted_s is not None:
            return Evidence.PREDICTED
        return None if self.bound_s is None else Evidence.BOUND


def list_trials(
    database: Database,
    study_id: int,
    *,
    wanted: TrialFilter = TrialFilter(),
    sort: Sort = BEST_FIRST,
    cursor: Cursor | None = None,
    limit: int = PAGE,
    counted: bool = True,
) -> Page[TrialLine]:
    """Returns one page of a study's trials, `counted` with the number of all that match.

    Raises InvalidValue on an unknown sort or cursor.
    """
    scope, conditions = [TrialRow.study_id == study_id], wanted.conditions()
    with database.read() as session:
        found = find_keys(
            session,
            TrialRow.number,
            _value(sort),
            scope=scope,
            conditions=conditions,
            descending=sort.descending,
            cursor=cursor,
            limit=limit,
        )
        counting = select(func.count()).select_from(TrialRow).where(*scope, *conditions)
        matching = session.scalar(counting) if counted else None
        return found.page(_lines(session, study_id, found.keys), matching)


def baselines(database: Database, study_id: int) -> Sequence[TrialLine]:
    """Returns the baselines of a study that were predicted, by name."""
    wanted = (
        select(TrialRow.number)
        .where(TrialRow.study_id == study_id, TrialRow.predicted_s.is_not(None), TrialRow.baseline != "")
        .order_by(TrialRow.number)
        .limit(8)
    )
    with database.read() as session:
        lines = _lines(session, study_id, list(session.scalars(wanted)))
    return sorted(lines, key=lambda line: (line.baseline, line.number))


def whole_trial(store: TrialStore, study_id: int, number: int) -> Trial | None:
    """Returns a trial with its documents, or None if there is none."""
    found = store.trials(study_id, after=number - 1, limit=1)
    return found[0] if found and found[0].number == number else None


def all_trials(
    database: Database, study_id: int, *, wanted: TrialFilter = TrialFilter(), sort: Sort = BEST_FIRST
) -> Iterator[TrialLine]:
    """Yields every trial that matches, in batches of a short transaction each: no reader holds a writer's log back."""
    cursor: Cursor | None = None
    while True:
        with database.read() as session:
            found = find_keys(
                session,
                TrialRow.number,
                _value(sort),
                scope=[TrialRow.study_id == study_id],
                conditions=wanted.conditions(),
                descending=sort.descending,
                cursor=cursor,
                limit=_BATCH,
            )
            lines = _lines(session, study_id, found.keys)
        yield from lines
        if not found.more_after:
            return
        cursor = Cursor(key=found.keys[-1], side=Side.AFTER)


def _value(sort: Sort) -> Any:
    try:
        return SORTS[sort.name]
    except KeyError:
        raise InvalidValue(f"trials are not sorted by {sort.name!r}; legal: {', '.join(SORTS)}") from None


def _lines(session: Session, study_id: int, numbers: Sequence[int]) -> list[TrialLine]:
    """Returns the lines of some numbers in their order."""
    rows: Any = session.execute(
        select(
            TrialRow.number,
            TrialRow.state,
            TrialRow.stage,
            TrialRow.baseline,
            short(TrialRow.layout),
            TrialRow.candidate["compiler_options"],
            TrialRow.bound_s,
            TrialRow.estimate_s,
            TrialRow.predicted_s,
            TrialRow.measured_s,
            TrialRow.numbers,
            TrialRow.reject_stage,
            TrialRow.reject_reason,
            short(TrialRow.reject_detail),
            short(TrialRow.host),
            TrialRow.started_at,
            TrialRow.finished_at,
        ).where(TrialRow.study_id == study_id, TrialRow.number.in_(numbers))
    )
    found = {row[0]: _line(*row) for row in rows}
    return [found[number] for number in numbers if number in found]


def _line(
    number: int,
    state: TrialState,
    stage: Stage,
    baseline: str,
    layout: str,
    flags: Any,
    bound_s: float | None,
    estimate_s: float | None,
    predicted_s: float | None,
    measured_s: float | None,
    numbers: Mapping[str, Any],
    reject_stage: Stage | None,
    reject_reason: RejectReason | None,
    reject_detail: str | None,
    host: str,
    started_at: datetime | None,
    finished_at: datetime | None,
) -> TrialLine:
    return TrialLine(
        number=number,
        state=state,
        stage=stage,
        baseline=baseline,
        layout=layout,
        compiler_options=" ".join(f"{name}={value}" for name, value in (flags or {}).items()),
        bound_s=bound_s,
        estimate_s=estimate_s,
        predicted_s=predicted_s,
        measured_s=measured_s,
        numbers=floats({name: numbers[name] for name in _SHOWN if numbers.get(name) is not None}),
        reject_stage=reject_stage,
        reject_reason=reject_reason,
        reject_detail=reject_detail or "",
        host=host,
        started_at=started_at,
        finished_at=finished_at,
    )
