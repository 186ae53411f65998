"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route


def routes() -> list[BaseRoute]:
    """Returns the two probes."""
    return [Route("/healthz", healthz), Route("/readyz", readyz)]


async def healthz(request: Request) -> Response:
    """Says that the process answers, whatever the database does."""
    return JSONResponse({"status": "ok"})


def readyz(request: Request) -> Response:
    """Says that the database answers and is at our revision; 503 with the reason otherwise."""
    request.app.state.store.check()
    return JSONResponse({"status": "ready"})
