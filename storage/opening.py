"""Opening a store by URL. Everything heavy is imported inside, when it is known to be needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tuner.errors import StoreError, ToolchainMissing

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

    from tuner.stores import Store

URL_VARIABLE = "MESHWRIGHT_DATABASE_URL"


def default_url() -> str:
    """Returns the URL in ``MESHWRIGHT_DATABASE_URL``, else that of ``meshwright.db`` in the user's data directory."""
    from_environment = os.environ.get(URL_VARIABLE, "").strip()
    if from_environment:
        return from_environment
    from platformdirs import user_data_path

    return f"sqlite:///{user_data_path('meshwright', appauthor=False) / 'meshwright.db'}"


def open_store(url: str | None = None, *, create: bool = False, read_only: bool = False) -> Store:
    """Opens the store of a URL; close it when done.

    Args:
        url: ``sqlite:///file.db``, ``postgresql://user@host/database`` or ``memory://``; None means `default_url()`.
        create: makes an SQLite file that is missing and the tables in a database that has none.
        read_only: lets the database itself refuse every change; such a change raises StoreError.

    Raises StoreError if the database is missing, out of reach, or at another revision than this version works on; the
    text says what to run.
    """
    from storage.memory import MemoryStore
    from storage.urls import MEMORY, is_sqlite, parse, shown, sqlite_path

    url = url or default_url()
    if url == MEMORY:
        return MemoryStore()
    parsed = parse(url)
    missing = is_sqlite(parsed) and not sqlite_path(parsed).exists()
    if missing and not create:
        raise StoreError(f"no such database: {shown(parsed)}")

    from storage import revision
    from storage.sharing import close_engine, open_engine
    from storage.sql.store import SqlStore

    engine = open_engine(parsed, read_only=read_only)
    try:
        if create and (missing or revision.current(engine) is None):
            from storage import migrations

            migrations.init(url)
        revision.require_head(engine)
    except BaseException:
        close_engine(engine)
        raise
    return SqlStore(engine)


def optuna_storage(url: str | None = None) -> BaseStorage:
    """Returns Optuna's storage in the same database, whose tables `storage.migrations.init` made.

    Raises StoreError if they are missing or another Optuna made them, ToolchainMissing if Optuna is not installed.
    """
    from storage.urls import MEMORY

    url = url or default_url()
    try:
        import optuna
    except ImportError:
        raise ToolchainMissing("Optuna is not installed; install meshwright[tpu] or optuna>=5") from None
    if url == MEMORY:
        return optuna.storages.InMemoryStorage()
    from storage.beside import open_optuna

    return open_optuna(url)
