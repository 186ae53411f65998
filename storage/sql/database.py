"""What the parts of the SQL store share: short transactions, and the few statements that differ by database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from storage.documents import clean, floats, strict
from storage.engines import translated, writing
from storage.schema import Base, Rejected
from storage.sql.patience import CommitUnknown, make_patient
from storage.urls import shown
from tuner.rejections import Rejection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Returns the time."""
    return datetime.now(UTC)


class Database:
    """One engine, and a transaction for each use of it.

    A transaction that fails is rolled back and its connection goes back clean, so the next call works.
    """

    def __init__(self, engine: Engine, *, clock: Clock = utc_now) -> None:
        self.engine = engine
        self.now = clock
        self._writing = writing(engine)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Runs a transaction that reads; on SQLite it takes no lock that a writer would wait for."""
        with translated(self.engine.url), Session(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Runs a transaction that writes; its changes are durable when it ends.

        Raises CommitUnknown if the connection breaks while they are being made durable.
        """
        with translated(self.engine.url), Session(self._writing, expire_on_commit=False) as session:
            # What goes wrong before the commit rolls back as the session closes.
            yield session
            session.flush()
            try:
                session.commit()
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise CommitUnknown(
                    f"the connection to {shown(self.engine.url)} broke in a commit; nobody knows whether it was made"
                ) from error

    def insert_new(self, session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts rows; one that clashes with a row that is there leaves it as it is."""
        if rows:
            session.execute(self.insert(table).on_conflict_do_nothing(), list(rows))

    def insert_or_replace(self, session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts rows, replacing those of the same primary key. Every row has the same columns."""
        if not rows:
            return
        keys = [column.name for column in table.__table__.primary_key]
        statement = self.insert(table)
        changes = {name: statement.excluded[name] for name in rows[0] if name not in keys}
        session.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), list(rows))

    def insert(self, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
        """Returns an insert of this database's dialect, which can say what to do about a row that is there."""
        # A dialect takes its time to import; only the one in use is.
        if self.engine.dialect.name == "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(table)
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)


class Part:
    """A part of the SQL store. Its public methods are tried again where an error passes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        make_patient(cls)

    def __init__(self, database: Database) -> None:
        self._db = database


def wrap_text(wrap: Sequence[bool]) -> str:
    """Returns a slice's wraparound as a column holds it: ``101`` for x and z."""
    return "".join("1" if closed else "0" for closed in wrap)


def rejected_columns(rejection: Rejection | None) -> dict[str, Any]:
    """Returns a rejection as columns, all of them NULL for None."""
    return {
        "reject_stage": rejection and rejection.stage,
        "reject_reason": rejection and rejection.reason,
        "reject_detail": rejection and clean(rejection.detail),
        "reject_numbers": rejection and strict(rejection.numbers),
    }


def rejection_of(row: Rejected) -> Rejection | None:
    """Returns the rejection that a row holds, or None."""
    if row.reject_stage is None or row.reject_reason is None:
        return None
    return Rejection(
        stage=row.reject_stage,
        reason=row.reject_reason,
        detail=row.reject_detail or "",
        numbers=floats(row.reject_numbers or {}),
    )
