"""Optuna's tables beside ours: making them, and opening Optuna's storage so that several workers can share it."""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import URL, Connection, event, inspect

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
        # Where it only reads, which may be thousands of trials, it must not keep writers waiting.
        storage.engine.dispose()
        event.listen(storage.engine, "begin", _begin)
    return storage


_reading = threading.local()


def _begin(connection: Connection) -> None:
    if not getattr(_reading, "now", False):
        begin_immediate(connection)


def _read_only(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(*args: Any, **kwargs: Any) -> Any:
        before, _reading.now = getattr(_reading, "now", False), True
        try:
            return method(*args, **kwargs)
        finally:
            _reading.now = before

    return read


class SharedStorage(BatchRDBStorage):
    """Optuna's storage whose methods that only read begin without a lock, where the database is SQLite."""


for _name in dir(RDBStorage):
    if _name.startswith("get_") or _name == "_get_trials":
        setattr(SharedStorage, _name, _read_only(getattr(RDBStorage, _name)))


def _storage(url: URL, *, skip_table_creation: bool) -> RDBStorage:
    engine_kwargs: dict[str, Any] = (
        {"creator": partial(connect_sqlite, sqlite_path(url), foreign_keys=False)}
        if is_sqlite(url)
        else {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
    )
    return SharedStorage(
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
