"""Compiled programs by use, in a database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from storage.schema import PlanRow, ProgramKeyRow, ProgramRow
from storage.schema_work import LeaseRow
from storage.sql.database import Part
from storage.sql.leases import database_clock
from tuner.layouts.layout import Candidate
from tuner.plans.plan import PlanState
from tuner.stores import ContentKey
from tuner.upkeep import OLD, Pruned, UpkeepStore

_DAY = timedelta(days=1)
_AT_ONCE = 500


class SqlUpkeepStore(Part, UpkeepStore):
    """`UpkeepStore` over our tables."""

    def use_program(self, key: ContentKey) -> None:
        """Notes that the program of a key was of use, to the day."""
        now = self._db.now()
        of_key = select(ProgramKeyRow.program_id).where(ProgramKeyRow.key_digest == key.digest).scalar_subquery()
        with self._db.write() as session:
            session.execute(
                update(ProgramRow)
                .where(
                    ProgramRow.id == of_key,
                    or_(
                        ProgramRow.used_at < now - _DAY,
                        and_(ProgramRow.used_at.is_(None), ProgramRow.stored_at < now - _DAY),
                    ),
                )
                .values(used_at=now),
                execution_options={"synchronize_session": False},
            )

    def prune_programs(self, *, most_bytes: int) -> Pruned:
        """Drops programs until the rest takes at most `most_bytes`."""
        with self._db.read() as session:
            if (session.scalar(select(func.sum(func.length(ProgramRow.body)))) or 0) <= most_bytes:
                return _left(session)
        with self._db.write() as session:
            needed = _needed(session)
            sizes = session.execute(
                select(ProgramRow.id, func.length(ProgramRow.body))
                .where(ProgramRow.body.is_not(None))
                .order_by(func.coalesce(ProgramRow.used_at, ProgramRow.stored_at), ProgramRow.id)
            ).all()
            excess = sum(size for _, size in sizes) - most_bytes
            gone, gone_bytes = [], 0
            for program_id, size in sizes:
                if gone_bytes >= excess:
                    break
                if program_id not in needed:
                    gone.append(program_id)
                    gone_bytes += size
            for start in range(0, len(gone), _AT_ONCE):
                session.execute(
                    delete(ProgramRow).where(ProgramRow.id.in_(gone[start : start + _AT_ONCE])),
                    execution_options={"synchronize_session": False},
                )
            return _left(session, dropped=len(gone), dropped_bytes=gone_bytes)

    def drop_old_leases(self) -> int:
        """Drops leases that ran out more than a day ago."""
        old = delete(LeaseRow).where(LeaseRow.expires_s < database_clock(self._db.engine) - OLD.total_seconds())
        with self._db.write() as session:
            dropped = session.scalars(
                old.returning(LeaseRow.resource), execution_options={"synchronize_session": False}
            )
            return len(dropped.all())


def _left(session: Session, *, dropped: int = 0, dropped_bytes: int = 0) -> Pruned:
    needed = _needed(session)
    sizes = session.execute(
        select(ProgramRow.id, func.length(ProgramRow.body)).where(ProgramRow.body.is_not(None))
    ).all()
    return Pruned(
        dropped=dropped,
        dropped_bytes=dropped_bytes,
        kept=len(sizes),
        kept_bytes=sum(size for _, size in sizes),
        needed_bytes=sum(size for program_id, size in sizes if program_id in needed),
    )


def _needed(session: Session) -> set[int]:
    """Returns the ids of programs that a candidate of an active plan lowers to on the plan's slice and toolchain."""
    active = session.execute(
        select(
            PlanRow.document["candidate"].label("candidate"), PlanRow.slice_name, PlanRow.wrap, PlanRow.toolchain_digest
        ).where(PlanRow.state == PlanState.ACTIVE)
    ).all()
    wanted = {(Candidate.from_json(row.candidate).digest, *row[1:]) for row in active}
    digests = sorted({digest for digest, *_ in wanted})
    needed: set[int] = set()
    for start in range(0, len(digests), _AT_ONCE):
        keys = session.execute(
            select(
                ProgramKeyRow.program_id,
                ProgramKeyRow.candidate_digest,
                ProgramRow.slice_name,
                ProgramRow.wrap,
                ProgramRow.toolchain_digest,
            )
            .join(ProgramRow, ProgramRow.id == ProgramKeyRow.program_id)
            .where(ProgramKeyRow.candidate_digest.in_(digests[start : start + _AT_ONCE]))
        )
        needed |= {program_id for program_id, *where in keys if tuple(where) in wanted}
    return needed
