"""Plans in a database, and the lookup ladder in at most two statements, and one for the plan that it leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Select, Text, bindparam, case, cast, func, literal_column, select, update
from sqlalchemy.orm import Session

from storage.documents import clean, strict
from storage.engines import take_turn
from storage.schema import PlanRow
from storage.sql.database import Part, wrap_text
from tuner.canonical import digest
from tuner.errors import PlanNotFound
from tuner.plans.lookup import Answer, Header, Located, Query, locate
from tuner.plans.plan import Evidence, Plan, PlanState, StoredDocument, StoredPlan
from tuner.stores import PlanStore, StudyKey


class SqlPlanStore(Part, PlanStore):
    """`PlanStore` over our table."""

    def promote(self, plan: Plan, *, note: str = "") -> StoredPlan:
        """Stores a plan as the active version of its key; the version that was active becomes superseded."""
        columns = _columns(plan)
        of_key = _of_key(plan)
        with self._db.write() as session:
            take_turn(session, f"plan {_key_digest(plan)}")
            latest = session.scalar(select(func.max(PlanRow.version)).where(*of_key)) or 0
            session.execute(
                update(PlanRow).where(*of_key, PlanRow.state == PlanState.ACTIVE).values(state=PlanState.SUPERSEDED)
            )
            row = PlanRow(
                **columns, version=latest + 1, state=PlanState.ACTIVE, stored_at=self._db.now(), note=clean(note)
            )
            session.add(row)
            session.flush()
            return _stored(row)

    def active(self, plan_like: Plan | StudyKey) -> StoredPlan | None:
        """Returns the active plan of the same key, or None."""
        query = select(PlanRow).where(*_of_key(plan_like), PlanRow.state == PlanState.ACTIVE)
        with self._db.read() as session:
            row = session.scalars(query).one_or_none()
            return None if row is None else _stored(row)

    def locate(self, query: Query) -> Located:
        """Goes down the lookup ladder without reading a plan's document."""
        with self._db.read() as session:
            return _located(session, query)

    def answer(self, query: Query) -> Answer:
        """Goes down the lookup ladder."""
        with self._db.read() as session:
            located = _located(session, query)
            return located.answer(None if located.plan_id is None else _read(session, located.plan_id))

    def plans(
        self, *, model: str | None = None, active_only: bool = True, limit: int | None = None
    ) -> Sequence[StoredPlan]:
        """Returns stored plans, newest first."""
        query = select(PlanRow).order_by(PlanRow.id.desc()).limit(limit)
        if model is not None:
            query = query.where(PlanRow.model == model)
        if active_only:
            query = query.where(PlanRow.state == PlanState.ACTIVE)
        with self._db.read() as session:
            return [_stored(row) for row in session.scalars(query)]

    def plan(self, plan_id: int) -> StoredPlan:
        """Returns one version. Raises PlanNotFound."""
        with self._db.read() as session:
            return _read(session, plan_id)

    def document(self, plan_id: int) -> StoredDocument:
        """Returns one version without reading its plan. Raises PlanNotFound."""
        with self._db.read() as session:
            row = _row(session, _DOCUMENT, plan_id)
        return StoredDocument(
            id=row.id, version=row.version, state=row.state, stored_at=row.stored_at, note=row.note, text=row.text
        )

    def retire(self, plan_id: int, *, note: str = "") -> StoredPlan:
        """Takes a version out of service. Raises PlanNotFound."""
        with self._db.write() as session:
            row = _find(session, plan_id)
            row.state = PlanState.RETIRED
            if note:
                row.note = clean(note)
            session.flush()
            return _stored(row)


def _located(session: Session, query: Query) -> Located:
    found = locate(query, _headers(session, query, shape=query.shape))
    # A plan of the asked shape settles it; without one, what there is decides between the lower rungs.
    return locate(query, _headers(session, query)) if found.plan_id is None else found


# Built once, on the table itself: to build a statement and to map its rows to objects takes longer than to run it.
_PLANS = PlanRow.__table__.c
_APART = (_PLANS.shape, _PLANS.revision, _PLANS.objective, _PLANS.reserve_hbm_bytes, _PLANS.evidence)
_OWN = case((_PLANS.toolchain_digest == bindparam("toolchain"), _PLANS.id))
_HEADERS = (
    select(*_APART, func.max(_PLANS.id), func.max(_OWN))
    .where(
        _PLANS.model == bindparam("model"),
        _PLANS.slice_name == bindparam("slice_name"),
        _PLANS.variant == bindparam("variant"),
        _PLANS.state == literal_column(f"'{PlanState.ACTIVE}'"),
    )
    .group_by(*_APART)
)
_HEADERS_OF_SHAPE = _HEADERS.where(_PLANS.shape == bindparam("shape"))
_HEAD = select(_PLANS.id, _PLANS.version, _PLANS.state, _PLANS.stored_at, _PLANS.note).where(
    _PLANS.id == bindparam("plan_id")
)
_STORED = _HEAD.add_columns(_PLANS.document)
_DOCUMENT = _HEAD.add_columns(cast(_PLANS.document, Text).label("text"))


def _headers(session: Session, query: Query, *, shape: str | None = None) -> list[Header]:
    """Returns the newest active plan of everything that the ladder tells apart, of one shape or of all.

    Toolchains, which are what accumulates, are not told apart but for the asked one, whose newest plan comes too. Every
    column is in the index ``ix_mw_plans_ladder``, so no row is touched.
    """
    digest_ = query.toolchain.digest if query.toolchain else ""
    asked = {
        "model": query.model,
        "slice_name": query.slice_name,
        "variant": query.variant,
        "toolchain": digest_,
        "shape": shape,
    }
    rows = session.connection().execute(_HEADERS if shape is None else _HEADERS_OF_SHAPE, asked).all()
    headers = []
    for shape_, revision, objective, reserve, evidence, newest, newest_own in rows:
        one = Header(
            id=newest,
            shape=shape_,
            revision=revision,
            purpose=objective,
            reserve_hbm_bytes=reserve,
            toolchain_digest=digest_ if newest == newest_own else "",
            measured=evidence is Evidence.MEASURED,
        )
        headers.append(one)
        if newest_own not in (None, newest):
            headers.append(replace(one, id=newest_own, toolchain_digest=digest_))
    return headers


def _read(session: Session, plan_id: int) -> StoredPlan:
    return _stored(_row(session, _STORED, plan_id))


def _row(session: Session, statement: Select[Any], plan_id: int) -> Row[Any]:
    row = session.connection().execute(statement, {"plan_id": plan_id}).one_or_none()
    if row is None:
        raise PlanNotFound(f"no plan {plan_id}")
    return row


def _find(session: Session, plan_id: int) -> PlanRow:
    row = session.get(PlanRow, plan_id)
    if row is None:
        raise PlanNotFound(f"no plan {plan_id}")
    return row


def _of_key(like: Plan | StudyKey) -> tuple[Any, ...]:
    return tuple(getattr(PlanRow, name) == value for name, value in _key_columns(like).items())


def _key_columns(like: Plan | StudyKey) -> dict[str, str]:
    return {
        "workload_digest": like.workload.digest,
        "slice_name": like.slice.name,
        "wrap": wrap_text(like.slice.wrap),
        "toolchain_digest": like.toolchain.digest,
        "constraints_digest": like.constraints.digest,
    }


def _key_digest(like: Plan | StudyKey) -> str:
    return digest(_key_columns(like))


def _columns(plan: Plan) -> dict[str, Any]:
    return {
        **_key_columns(plan),
        "model": plan.workload.model,
        "shape": plan.workload.shape,
        "variant": plan.workload.variant,
        "revision": plan.workload.revision,
        "objective": plan.constraints.purpose,
        "reserve_hbm_bytes": plan.constraints.reserve_hbm_bytes,
        "jax": plan.toolchain.jax,
        "libtpu": plan.toolchain.libtpu,
        "evidence": plan.evidence,
        "step_s": plan.step_s,
        "baseline_s": next((baseline.step_s for baseline in plan.baselines if baseline.name == "A"), None),
        "memory_bytes": plan.memory_bytes,
        "proved": plan.proved,
        "study": plan.study,
        "trial": plan.trial,
        "created_at": plan.created_at,
        "document": strict(plan.to_json()),
    }


def _stored(row: Any) -> StoredPlan:
    return StoredPlan(
        plan=Plan.from_json(row.document),
        id=row.id,
        version=row.version,
        state=row.state,
        stored_at=row.stored_at,
        note=row.note,
    )
