"""Leases in a database: each method is one statement, which the database runs whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Double, Engine, delete, literal_column, select, update
from sqlalchemy.sql.elements import ColumnElement

from storage.documents import clean
from storage.schema_work import LeaseRow
from storage.sql.database import Part
from tuner.leases import Lease, LeaseStore, host_of

# The clock of the statement: PostgreSQL's `now()` stands still in a transaction that waited for a row.
_NOW_S = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
}


class SqlLeaseStore(Part, LeaseStore):
    """`LeaseStore` over our table."""

    def claim(self, resource: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Returns the lease if the resource was free or its lease had run out."""
        now = self._clock
        statement = self._db.insert(LeaseRow).values(
            resource=clean(resource),
            owner=clean(owner),
            host=clean(host_of(owner)),
            claims=1,
            claimed_s=now,
            expires_s=now + ttl_s,
        )
        taken = statement.on_conflict_do_update(
            index_elements=[LeaseRow.resource],
            set_={
                **{name: statement.excluded[name] for name in ("owner", "host", "claimed_s", "expires_s")},
                "claims": LeaseRow.claims + 1,
            },
            where=LeaseRow.expires_s <= now,
        ).returning(LeaseRow)
        with self._db.write() as session:
            row = session.scalars(taken).one_or_none()
            return None if row is None else _lease(row)

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Returns the lease with `ttl_s` seconds more from now, or None if it was lost."""
        renewed = (
            update(LeaseRow)
            .where(LeaseRow.resource == clean(lease.resource), LeaseRow.owner == clean(lease.owner))
            .values(expires_s=self._clock + ttl_s)
            .returning(LeaseRow)
        )
        with self._db.write() as session:
            row = session.scalars(renewed, execution_options={"synchronize_session": False}).one_or_none()
            return None if row is None else _lease(row)

    def release(self, lease: Lease) -> bool:
        """Frees the resource; returns False if the lease was lost."""
        freed = (
            delete(LeaseRow)
            .where(LeaseRow.resource == clean(lease.resource), LeaseRow.owner == clean(lease.owner))
            .returning(LeaseRow.resource)
        )
        with self._db.write() as session:
            return session.scalars(freed, execution_options={"synchronize_session": False}).one_or_none() is not None

    def leases(self, prefix: str = "") -> Sequence[Lease]:
        """Returns the leases that have not run out of resources that begin with `prefix`."""
        live = select(LeaseRow).where(LeaseRow.expires_s > self._clock)
        if prefix:
            live = live.where(LeaseRow.resource.startswith(clean(prefix), autoescape=True))
        with self._db.read() as session:
            # Sorted here: databases order texts by their own rules.
            return sorted((_lease(row) for row in session.scalars(live)), key=lambda lease: lease.resource)

    @property
    def _clock(self) -> ColumnElement[float]:
        return database_clock(self._db.engine)


def database_clock(engine: Engine) -> ColumnElement[float]:
    """Returns the time in seconds since 1970 as the database has it when it runs the statement."""
    return literal_column(_NOW_S[engine.dialect.name], Double)


def _lease(row: LeaseRow) -> Lease:
    return Lease(
        resource=row.resource,
        owner=row.owner,
        host=row.host,
        claims=row.claims,
        claimed_at=datetime.fromtimestamp(row.claimed_s, UTC),
        expires_at=datetime.fromtimestamp(row.expires_s, UTC),
    )
