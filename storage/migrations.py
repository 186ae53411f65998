"""Making and changing the schema, with Alembic driven from code: no ini file, and the migrations travel in the wheel.

Every change is one transaction under a lock, so any number of processes may start on an empty database at once, and one
that is killed leaves the schema as it was.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import URL, Connection, func, select

from storage import revision as revisions
from storage.engines import connect_sqlite, lock_number, make_engine, translated, writing
from storage.partial import METADATA
from storage.urls import is_sqlite, parse, shown, sqlite_path
from tuner.errors import StoreError

# How Alembic must look at a database that it shares; `alembic/env.py` uses the same.
OPTIONS: dict[str, Any] = {
    "target_metadata": METADATA,
    "version_table": revisions.VERSION_TABLE,
    "include_name": lambda name, kind, parents: kind != "table" or is_ours(name),
    "include_object": lambda item, name, kind, reflected, compare_to: kind != "table" or is_ours(name),
    "render_as_batch": True,
    "compare_type": True,
}


def is_ours(table: str | None) -> bool:
    """True for the name of a table that our migrations may touch."""
    return table is not None and table.startswith("mw_") and table != revisions.VERSION_TABLE


def init(url: str) -> None:
    """Makes the database, our tables at the newest revision, and Optuna's tables if Optuna is installed.

    Safe to repeat and for several processes at once. Raises StoreError if the database is out of reach.
    """
    parsed = parse(url)
    if is_sqlite(parsed):
        _make_file(sqlite_path(parsed))
    with _alone(parsed):
        if is_sqlite(parsed):
            _write_ahead(sqlite_path(parsed))
        _migrate(parsed, lambda config: command.upgrade(config, "head"))
        if importlib.util.find_spec("optuna") is not None:
            from storage.beside import make_optuna_tables

            make_optuna_tables(parsed)


def upgrade(url: str, revision: str = "head") -> None:
    """Brings an existing database to a newer revision. Raises StoreError if there is none."""
    parsed = _existing(url)
    with _alone(parsed):
        _migrate(parsed, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Takes an existing database back to an older revision; ``base`` drops our tables and nothing else."""
    parsed = _existing(url)
    with _alone(parsed):
        _migrate(parsed, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """Returns the revision of an existing database, or None if it holds none of our tables."""
    engine = make_engine(_existing(url))
    try:
        return revisions.current(engine)
    finally:
        engine.dispose()


def check(url: str) -> list[str]:
    """Returns what is wrong with a database's schema, one sentence each; nothing if it is in order.

    Raises StoreError if the database is missing or out of reach.
    """
    parsed = _existing(url)
    engine = make_engine(parsed)
    try:
        try:
            revisions.require_head(engine)
        except StoreError as error:
            return [str(error)]
        with translated(parsed), engine.connect() as connection:
            context = MigrationContext.configure(connection, opts=OPTIONS)
            differences = compare_metadata(context, METADATA)
    finally:
        engine.dispose()
    return [f"{shown(parsed)} differs from the models: {difference}" for difference in differences]


def vacuum(url: str) -> None:
    """Gives the free space of an SQLite file back to the file system; PostgreSQL sees to that itself.

    Raises StoreError if the file is missing, in use for too long, or the disk has no room for a copy of it.
    """
    parsed = _existing(url)
    if not is_sqlite(parsed):
        return
    try:
        connection = connect_sqlite(sqlite_path(parsed))
        try:
            connection.isolation_level = None
            connection.execute("VACUUM")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(f"cannot shrink {shown(parsed)}: {error}") from error


def configuration(connection: Connection | None = None) -> Config:
    """Returns Alembic's configuration for our migrations, to run on a connection if one is given."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    return config


def _scripts() -> Path:
    """Returns the directory of the migrations: beside this file in a wheel, beside this package in a checkout."""
    here = Path(__file__).parent
    for place in (here / "_alembic", here.parent / "alembic"):
        if (place / "env.py").is_file():
            return place
    raise StoreError(f"the migrations are not installed: there is no env.py in {here / '_alembic'}")


def _existing(url: str) -> URL:
    parsed = parse(url)
    if is_sqlite(parsed) and not sqlite_path(parsed).exists():
        raise StoreError(f"no such database: {shown(parsed)}")
    return parsed


def _make_file(path: Path) -> None:
    """Makes an SQLite file, which is empty as long as it has no tables, and the directories above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error}") from error


def _write_ahead(path: Path) -> None:
    """Sets write-ahead-log mode, which the file keeps; done only here, as it takes a moment without other users."""
    try:
        connection = connect_sqlite(path)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(f"cannot prepare {path}: {error}") from error


def _migrate(url: URL, step: Any) -> None:
    # Batch migrations on SQLite copy a table and drop the old one, which foreign keys would turn into deletes.
    engine = make_engine(url, foreign_keys=False)
    try:
        with translated(url), writing(engine).begin() as connection:
            step(configuration(connection))
            if is_sqlite(url):
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
                if broken:
                    raise StoreError(
                        f"migrating {shown(url)} would break {len(broken)} references; nothing was changed"
                    )
    finally:
        engine.dispose()


@contextmanager
def _alone(url: URL) -> Iterator[None]:
    """Holds the lock of whoever changes the schema of this database.

    Optuna makes its tables over connections of its own, so the lock must be none that these would wait for: an advisory
    lock on PostgreSQL; on SQLite a lock on the file's directory, which needs no file that stays behind.
    """
    if is_sqlite(url):
        try:
            directory = os.open(sqlite_path(url).parent, os.O_RDONLY)
        except OSError as error:
            raise StoreError(f"cannot lock {sqlite_path(url).parent}: {error}") from error
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)
        return
    engine = make_engine(url)
    try:
        with translated(url), engine.connect() as connection:
            connection.execute(select(func.pg_advisory_lock(lock_number("schema"))))
            yield
    finally:
        engine.dispose()
