"""Where Chromium is, and how it is started: quiet, and without a word to anyone but our own service."""

from __future__ import annotations

import os
import shutil

NAMED = "MESHWRIGHT_TEST_CHROMIUM"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """Returns the browser's path: the one that MESHWRIGHT_TEST_CHROMIUM names, else the system's."""
    return os.environ.get(NAMED) or shutil.which("chromium") or shutil.which("chromium-browser")
