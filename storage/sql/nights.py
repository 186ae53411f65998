"""Nightly runs in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.documents import strict, utc
from storage.schema_nights import NightRow
from storage.sql.database import Part
from tuner.nightly.nights import NightState, NightStore, StoredNight


class SqlNightStore(Part, NightStore):
    """`NightStore` over our table."""

    def save_night(
        self,
        night_id: int | None,
        *,
        state: NightState,
        must_look: bool,
        started_at: datetime,
        finished_at: datetime | None,
        document: Mapping[str, Any],
    ) -> int:
        """Stores a night, a new one if `night_id` is None, and returns its id."""
        with self._db.write() as session:
            row = NightRow() if night_id is None else _find(session, night_id)
            row.state, row.must_look, row.document = state, must_look, strict(document)
            row.started_at = started_at
            row.finished_at = utc(finished_at)
            session.add(row)
            session.flush()
            return row.id

    def nights(self, *, limit: int = 30) -> Sequence[StoredNight]:
        """Returns the last nights, newest first."""
        with self._db.read() as session:
            rows = session.scalars(select(NightRow).order_by(NightRow.id.desc()).limit(limit))
            return [_stored(row) for row in rows]

    def night(self, night_id: int) -> StoredNight:
        """Returns one night."""
        with self._db.read() as session:
            return _stored(_find(session, night_id))


def _find(session: Session, night_id: int) -> NightRow:
    row = session.get(NightRow, night_id)
    if row is None:
        raise KeyError(f"no night {night_id}")
    return row


def _stored(row: NightRow) -> StoredNight:
    return StoredNight(
        id=row.id,
        state=row.state,
        must_look=row.must_look,
        started_at=row.started_at,
        finished_at=row.finished_at,
        document=row.document,
    )
