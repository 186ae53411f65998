"""The API under ``/v1``."""

from __future__ import annotations

from starlette.routing import BaseRoute


def routes() -> list[BaseRoute]:
    """Returns the routes of the API."""
    return []
