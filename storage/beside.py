"""Optuna's tables beside ours: making them, and opening Optuna's storage so that several workers can share it."""

from __future__ import annotations

import re
import weakref
from functools import partial
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import URL, event, inspect

from storage.batches import BatchRDBStorage
from storage.engines import begin_immediate, connect_sqlite, make_engine, translated
from storage.urls import is_sqlite, parse, shown, sqlite_path
from tuner.errors import StoreError

_OPTUNA_REVISION = re.compile(r"v\d+\.\d+\.\d+")


def make_optuna_tables(url: URL) -> None:
    """Makes Optuna's tables unless they are there.

    Optuna's own way is not safe for several processes at once, so the caller (`storage.migrations.init`) holds a lock.
    """
    with translated(url):
        storage = _storage(url, skip_table_creation=False)
        storage.engine.dispose()


def open_optuna(url: str) -> RDBStorage:
    """Opens Optuna's storage. Raises StoreError if its tables are missing or of another Optuna.

    Its connections are closed when it is collected, or by ``storage.engine.dispose()``.
    """
    parsed = parse(url)
    engine = make_engine(parsed)
    try:
        with translated(parsed), engine.connect() as connection:
            ready = inspect(connection).has_table("version_info")
    finally:
        engine.dispose()
    if not ready:
        raise StoreError(f"{shown(parsed)} holds no Optuna tables; run `meshwright db init`")
    storage = _storage(parsed, skip_table_creation=True)
    weakref.finalize(storage, storage.engine.dispose)
    _require_compatible(storage, parsed)
    if is_sqlite(parsed):
        # Optuna reads and then writes in one transaction; see `storage.engines` for why that must begin immediately.
        storage.engine.dispose()
        event.listen(storage.engine, "begin", begin_immediate)
    return storage


def _storage(url: URL, *, skip_table_creation: bool) -> RDBStorage:
    engine_kwargs: dict[str, Any] = (
        {"creator": partial(connect_sqlite, sqlite_path(url), foreign_keys=False)}
        if is_sqlite(url)
        else {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
    )
    return BatchRDBStorage(
        # Optuna runs the text through `str.format`.
        url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}"),
        engine_kwargs=engine_kwargs,
        # Checked by `_require_compatible`, which knows that ``alembic_version`` may belong to another application.
        skip_compatibility_check=True,
        skip_table_creation=skip_table_creation,
    )


def _require_compatible(storage: RDBStorage, url: URL) -> None:
    found = storage.get_current_version()
    if found == storage.get_head_version() or not _OPTUNA_REVISION.match(found):
        return
    advice = (
        "run `optuna storage upgrade`"
        if found in storage.get_all_versions()
        else "upgrade Optuna (pip install -U optuna)"
    )
    raise StoreError(
        f"Optuna's tables in {shown(url)} are at {found}, Optuna {optuna.__version__} needs "
        f"{storage.get_head_version()}; {advice}"
    )
