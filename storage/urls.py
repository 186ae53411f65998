"""Database URLs: which ones are legal, and one spelling for each database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import StoreError

MEMORY = "memory://"
"""URL of a store that lives and dies with the process."""

_LEGAL = f"legal: sqlite:///path/to/file.db, postgresql://user@host/database, {MEMORY}"


def parse(url: str) -> URL:
    """Returns the URL in the one spelling that SQLAlchemy is given.

    PostgreSQL is spoken to through psycopg 3, whatever driver the URL names; an SQLite path becomes absolute. Raises
    StoreError if the URL is of another kind.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        hint = f"; did you mean sqlite:///{url}?" if url and "://" not in url else ""
        raise StoreError(f"not a database URL: {url!r}{hint}; {_LEGAL}") from None
    backend = parsed.drivername.partition("+")[0]
    if backend in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        elsewhere = parsed.host or parsed.username or parsed.password or parsed.port
        if elsewhere or not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
            raise StoreError(f"an SQLite URL must name a file and no host, got {url!r}; {_LEGAL}")
        return parsed.set(drivername="sqlite", database=str(Path(parsed.database).expanduser().absolute()), query={})
    raise StoreError(f"no store for {parsed.render_as_string()!r}; {_LEGAL}")


def is_sqlite(url: URL) -> bool:
    """True if the URL names an SQLite file."""
    return url.get_backend_name() == "sqlite"


def sqlite_path(url: URL) -> Path:
    """Returns the absolute path of a parsed SQLite URL."""
    return Path(url.database or "")


def shown(url: URL) -> str:
    """Returns how a message names the database: the path of a file, or the URL without its password."""
    return str(sqlite_path(url)) if is_sqlite(url) else url.render_as_string(hide_password=True)
