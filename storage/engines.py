"""Engines: how each database is connected to, and how transactions begin.

SQLite needs care that its driver does not take. A deferred transaction that reads and then writes fails with "database
is locked" as soon as another process wrote in between, and the driver's own transactions lose updates silently; so a
writer begins IMMEDIATE and waits its turn, and a reader begins deferred, which in write-ahead-log mode never waits.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from storage.urls import is_sqlite, shown, sqlite_path
from tuner.canonical import canonical_json
from tuner.errors import StoreError

BUSY_S = 30.0
"""Seconds that a writer waits for its turn on SQLite."""

_WRITES = "meshwright_writes"


def connect_sqlite(path: Path, *, foreign_keys: bool = True, read_only: bool = False) -> sqlite3.Connection:
    """Connects to an SQLite file. A file that is missing is an error and stays missing."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=BUSY_S,
        check_same_thread=False,
        # We begin transactions ourselves. Where somebody else's engine does not (a pickled Optuna storage makes a new
        # one), the driver begins them before a write, and then immediately too.
        isolation_level="IMMEDIATE",
    )
    try:
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        connection.execute("PRAGMA synchronous = NORMAL")
        if read_only:
            # A connection that is opened for reading only cannot join a write-ahead log that nobody else has open.
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def make_engine(url: URL, *, foreign_keys: bool = True, read_only: bool = False) -> Engine:
    """Returns an engine for a parsed URL. Transactions of `writing(engine)` take SQLite's write lock as they begin.

    With `read_only`, the database refuses whatever would change it.
    """
    if is_sqlite(url):
        creator = partial(connect_sqlite, sqlite_path(url), foreign_keys=foreign_keys, read_only=read_only)
        engine = create_engine(url, creator=creator, json_serializer=canonical_json)
        event.listen(engine, "begin", _begin)
        return engine
    return create_engine(
        url,
        json_serializer=canonical_json,
        # Trials are long; a connection that the server or a firewall closed in between is replaced unseen.
        pool_pre_ping=True,
        connect_args={"connect_timeout": 10}
        | ({"options": "-c default_transaction_read_only=on"} if read_only else {}),
    )


def writing(engine: Engine) -> Engine:
    """Returns the same engine for transactions that write."""
    return engine.execution_options(**{_WRITES: True})


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN DEFERRED")


def begin_immediate(connection: Connection) -> None:
    """Begins every transaction of an engine that it is listened on with SQLite's write lock."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def take_turn(session: Session, name: str) -> None:
    """Makes transactions that name the same thing wait for each other until they end.

    On SQLite writers do so anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(lock_number(name))))


def lock_number(name: str) -> int:
    """Returns the 64-bit number that stands for a name among PostgreSQL's advisory locks."""
    return int.from_bytes(hashlib.sha256(f"meshwright {name}".encode()).digest()[:8], signed=True)


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turns a driver's error into a StoreError that names the database and says what to do."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(_explained(error, url)) from error
    except PoolTimeout as error:
        raise StoreError(f"too many threads use {shown(url)} at once: {error}") from error


def _explained(error: DBAPIError, url: URL) -> str:
    message = str(error.orig).strip()
    if is_sqlite(url):
        if "unable to open" in message and not sqlite_path(url).exists():
            return f"no such database: {shown(url)}"
        if "locked" in message:
            return (
                f"{shown(url)} was locked by another writer for more than {BUSY_S:.0f} s; "
                "use PostgreSQL where many workers write at once"
            )
        if "not a database" in message or "malformed" in message:
            return f"{shown(url)} is damaged or not an SQLite database ({message})"
    if "disk is full" in message or getattr(error.orig, "sqlstate", None) == "53100":
        return (
            f"no space is left for {shown(url)}; what was stored is safe, this change was not made: free some space "
            "(`meshwright db prune` drops compiled programs that nothing needs)"
        )
    if error.connection_invalidated or "connect" in message:
        return f"cannot reach {shown(url)}: {message}"
    return f"{shown(url)}: {message}"
