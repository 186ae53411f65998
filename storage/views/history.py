"""How a study went: the best so far, and what was predicted beside what was measured.

A study may hold any number of trials and a picture only so many marks, so the database picks: every improvement, and of
the rest an even sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select

from storage.schema import TrialRow
from storage.sql.database import Database
from tuner.plans.plan import Evidence
from tuner.rejections import Stage

MARKS = 600
"""Trials that a picture shows at most, improvements apart."""

PAIRS = 2000
"""Pairs of a prediction and a measurement that are compared at most."""

LINES = 150
"""Trials that parallel coordinates show at most."""

_COMPILED = (Stage.COMPILE, Stage.PLACE, Stage.MEASURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A trial in the history.

    Attributes:
        number: in its study.
        compiles: trials that had gone to the compiler by then, this one included.
        finished_at: when it ended.
        predicted_s: its predicted step seconds.
        measured_s: its measured step seconds.
        improves: True if nothing before it was as fast, under the evidence that was asked for.
    """

    number: int
    compiles: int
    finished_at: datetime
    predicted_s: float | None
    measured_s: float | None
    improves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A trial's predicted and measured step seconds."""

    number: int
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """A trial's candidate document, and what became of it."""

    number: int
    predicted_s: float
    measured_s: float | None
    candidate: Mapping[str, Any]


def history(database: Database, study_id: int, known: int, evidence: Evidence = Evidence.PREDICTED) -> Sequence[Mark]:
    """Returns every improvement of a study and a sample of its other trials with a step time, in order of their end.

    Args:
        database: to read.
        study_id: the study.
        known: how many trials have a step time of that evidence, about.
        evidence: measured or predicted: which step time counts.
    """
    step_s = TrialRow.measured_s if evidence is Evidence.MEASURED else TrialRow.predicted_s
    order = (TrialRow.finished_at, TrialRow.number)
    compiled = (
        select(
            TrialRow.number,
            TrialRow.finished_at,
            TrialRow.predicted_s,
            TrialRow.measured_s,
            step_s.label("step_s"),
            func.row_number().over(order_by=order).label("compiles"),
            func.min(step_s).over(order_by=order, rows=(None, -1)).label("before"),
        )
        .where(TrialRow.study_id == study_id, TrialRow.stage.in_(_COMPILED), TrialRow.finished_at.is_not(None))
        .subquery()
    )
    improves = or_(compiled.c.before.is_(None), compiled.c.step_s < compiled.c.before)
    wanted = (
        select(
            compiled.c.number,
            compiled.c.compiles,
            compiled.c.finished_at,
            compiled.c.predicted_s,
            compiled.c.measured_s,
            improves,
        )
        .where(
            compiled.c.step_s.is_not(None),
            or_(improves, compiled.c.compiles % (known // MARKS + 1) == 0),
        )
        .order_by(compiled.c.compiles)
        .limit(4 * MARKS)
    )
    with database.read() as session:
        return [
            Mark(
                number=number,
                compiles=compiles,
                finished_at=at,
                predicted_s=predicted,
                measured_s=measured,
                improves=bool(better),
            )
            for number, compiles, at, predicted, measured, better in session.execute(wanted)
        ]


def pairs(database: Database, study_id: int) -> Sequence[Pair]:
    """Returns trials that were predicted and measured, the first `PAIRS` of them in order of their end."""
    wanted = (
        select(TrialRow.number, TrialRow.predicted_s, TrialRow.measured_s)
        # Were it to ask for a prediction too, SQLite would go by the index of predictions and open every row.
        .where(TrialRow.study_id == study_id, TrialRow.measured_s.is_not(None))
        .order_by(TrialRow.finished_at, TrialRow.number)
        .limit(PAIRS)
    )
    with database.read() as session:
        rows: Any = session.execute(wanted)
        return [Pair(number=n, predicted_s=p, measured_s=m) for n, p, m in rows if p is not None]


def coordinates(database: Database, study_id: int, limit: int = LINES) -> Sequence[Coordinates]:
    """Returns the best predicted trials with their candidates."""
    wanted = (
        select(TrialRow.number, TrialRow.predicted_s, TrialRow.measured_s, TrialRow.candidate)
        .where(TrialRow.study_id == study_id, TrialRow.predicted_s.is_not(None))
        .order_by(TrialRow.predicted_s, TrialRow.number)
        .limit(limit)
    )
    with database.read() as session:
        return [
            Coordinates(number=number, predicted_s=predicted, measured_s=measured, candidate=candidate)
            for number, predicted, measured, candidate in session.execute(wanted)
        ]
