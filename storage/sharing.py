"""One pool of connections for each database server in a process, however many stores are open on it.

A server has connections for everybody, so fifty stores must not hold fifty. An SQLite file has no such limit, and may
be replaced by another of the same name, so stores on files share nothing.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from sqlalchemy import URL, Engine

from storage.engines import make_engine
from storage.urls import is_sqlite


@dataclass(slots=True)
class _Shared:
    engine: Engine
    users: int = 0


_LOCK = threading.Lock()
_SHARED: dict[tuple[int, str, bool], _Shared] = {}


def open_engine(url: URL, *, read_only: bool) -> Engine:
    """Returns an engine of a parsed URL; give it back with `close_engine`."""
    if is_sqlite(url):
        return make_engine(url, read_only=read_only)
    # A process that was forked must not use its parent's connections.
    key = os.getpid(), url.render_as_string(hide_password=False), read_only
    with _LOCK:
        if key not in _SHARED:
            _SHARED[key] = _Shared(make_engine(url, read_only=read_only))
        _SHARED[key].users += 1
        return _SHARED[key].engine


def close_engine(engine: Engine) -> None:
    """Gives an engine back; its connections are closed when nobody uses it any more. Safe to repeat for a file's."""
    with _LOCK:
        for key, shared in list(_SHARED.items()):
            if shared.engine is engine:
                shared.users -= 1
                if shared.users > 0:
                    return
                del _SHARED[key]
    engine.dispose()
