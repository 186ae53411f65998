"""Which revision of the schema this version works on, and the check that a database is at it.

A lookup must not pay for importing Alembic, so the revisions are listed here; a test compares them with the migrations.
"""

from __future__ import annotations

from sqlalchemy import Engine, inspect, text

from storage.engines import translated
from storage.urls import shown
from tuner.errors import StoreError

VERSION_TABLE = "mw_alembic_version"
"""Ours alone: Optuna and others use Alembic's default name in the same database."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every revision, oldest first."""

HEAD = REVISIONS[-1]


def current(engine: Engine) -> str | None:
    """Returns a database's revision, or None if it has none of our tables. Raises StoreError if it is out of reach."""
    with translated(engine.url), engine.connect() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def require_head(engine: Engine) -> None:
    """Raises StoreError with what to run unless the database is at our revision."""
    found = current(engine)
    if found == HEAD:
        return
    where = shown(engine.url)
    if found is None:
        raise StoreError(f"{where} holds no meshwright tables; run `meshwright db init`")
    if found in REVISIONS:
        raise StoreError(f"{where} is at revision {found}, this version needs {HEAD}; run `meshwright db upgrade`")
    raise StoreError(
        f"{where} is at revision {found}, which a newer meshwright made; this version knows up to {HEAD}: "
        "upgrade the package"
    )
