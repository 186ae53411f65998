"""The real service on a port of its own, in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from adapters.web.app import create_app


@contextmanager
def serving(url: str, root_path: str = "") -> Iterator[str]:
    """Serves a database; gives the address of the first page without its last slash."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(create_app(url, root_path=root_path), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        for _ in range(200):
            if server.started:
                break
            time.sleep(0.05)
        assert server.started, "the service did not start within 10 s"
        try:
            yield f"http://127.0.0.1:{port}{root_path}"
        finally:
            server.should_exit = True
            thread.join(10)
