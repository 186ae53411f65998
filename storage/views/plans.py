"""Plans as lists show them, without their documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select

from storage.schema import PlanRow, StudyRow
from storage.sql.database import Database
from storage.views.paging import PAGE, Cursor, Page, Sort, find_keys
from storage.views.view import contains, short
from tuner.errors import InvalidValue
from tuner.plans.plan import Evidence, PlanState
from tuner.plans.toolchain import Toolchain

SORTS: dict[str, Any] = {
    "id": PlanRow.id,
    "model": PlanRow.model,
    "slice": PlanRow.slice_name,
    "step": PlanRow.step_s,
    "speedup": PlanRow.baseline_s / PlanRow.step_s,
    "memory": PlanRow.memory_bytes,
}
"""What plans may be sorted by; the id is in order of their storing."""

NEWEST_FIRST = Sort(name="id", descending=True)

_COLUMNS = (
    PlanRow.id,
    PlanRow.version,
    PlanRow.state,
    short(PlanRow.model),
    short(PlanRow.shape),
    short(PlanRow.variant),
    short(PlanRow.revision),
    PlanRow.slice_name,
    short(PlanRow.objective),
    PlanRow.reserve_hbm_bytes,
    PlanRow.jax,
    PlanRow.libtpu,
    PlanRow.toolchain_digest,
    PlanRow.evidence,
    PlanRow.step_s,
    PlanRow.baseline_s,
    PlanRow.memory_bytes,
    PlanRow.proved,
    short(PlanRow.study),
    PlanRow.trial,
    PlanRow.stored_at,
    short(PlanRow.note),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFilter:
    """Which plans are meant; None and an empty text mean all. `text` is part of the model, the shape or the slice."""

    state: PlanState | None = PlanState.ACTIVE
    evidence: Evidence | None = None
    text: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        """Returns what the filter asks of a row."""
        out: list[ColumnElement[bool]] = []
        if self.state is not None:
            out.append(PlanRow.state == self.state)
        if self.evidence is not None:
            out.append(PlanRow.evidence == self.evidence)
        if self.text:
            out.append(contains(self.text, PlanRow.model, PlanRow.shape, PlanRow.slice_name, PlanRow.variant))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """A plan's version in a list. Texts are cut short; `baseline_s` is baseline A under the plan's own evidence."""

    id: int
    version: int
    state: PlanState
    model: str
    shape: str
    variant: str
    revision: str
    slice_name: str
    objective: str
    reserve_hbm_bytes: int
    jax: str
    libtpu: str
    toolchain_digest: str
    evidence: Evidence
    step_s: float
    baseline_s: float | None
    memory_bytes: int | None
    proved: bool
    study: str
    trial: int
    stored_at: datetime
    note: str

    @property
    def speedup(self) -> float | None:
        """How many times as fast as what is deployed today; None if that does not run."""
        return None if self.baseline_s is None or self.step_s == 0 else self.baseline_s / self.step_s


def list_plans(
    database: Database,
    *,
    wanted: PlanFilter = PlanFilter(),
    sort: Sort = NEWEST_FIRST,
    cursor: Cursor | None = None,
    limit: int = PAGE,
    counted: bool = True,
) -> Page[PlanLine]:
    """Returns one page of plans, `counted` with the number of all that match.

    Raises InvalidValue on an unknown sort or cursor.
    """
    if sort.name not in SORTS:
        raise InvalidValue(f"plans are not sorted by {sort.name!r}; legal: {', '.join(SORTS)}")
    conditions = wanted.conditions()
    with database.read() as session:
        found = find_keys(
            session,
            PlanRow.id,
            SORTS[sort.name],
            conditions=conditions,
            descending=sort.descending,
            cursor=cursor,
            limit=limit,
        )
        counting = select(func.count()).select_from(PlanRow).where(*conditions)
        matching = session.scalar(counting) if counted else None
        rows = session.execute(select(*_COLUMNS).where(PlanRow.id.in_(found.keys)))
        lines = {row[0]: _line(row) for row in rows}
        return found.page([lines[key] for key in found.keys if key in lines], matching)


def versions(database: Database, plan_id: int, limit: int = PAGE) -> Sequence[PlanLine]:
    """Returns the newest versions of the key that a plan has, newest first; nothing if there is no such plan."""
    key = (
        select(
            PlanRow.workload_digest,
            PlanRow.slice_name,
            PlanRow.wrap,
            PlanRow.toolchain_digest,
            PlanRow.constraints_digest,
        )
        .where(PlanRow.id == plan_id)
        .subquery()
    )
    of_key = [PlanRow.__table__.c[column.name] == column for column in key.c]
    wanted = select(*_COLUMNS).join(key, *[_all(of_key)]).order_by(PlanRow.version.desc()).limit(limit)
    with database.read() as session:
        return [_line(row) for row in session.execute(wanted)]


def newest_toolchain(database: Database) -> Toolchain | None:
    """Returns the toolchain of the newest study, which is what is in use now; None without studies."""
    with database.read() as session:
        document = session.scalar(select(StudyRow.key["toolchain"]).order_by(StudyRow.id.desc()).limit(1))
    return None if document is None else Toolchain.from_json(document)


def _all(conditions: Sequence[Any]) -> Any:
    first, *rest = conditions
    for condition in rest:
        first = first & condition
    return first


def _line(row: Any) -> PlanLine:
    return PlanLine(**dict(zip(PlanLine.__dataclass_fields__, row, strict=True)))
