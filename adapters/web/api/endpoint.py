"""Endpoints run in threads, each within the time that a request may take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from adapters.web.problems import problem

Endpoint = Callable[[Request, bytes], Response]
"""Takes a request and its body. Runs in a thread, because the database is waited for."""


def endpoint(function: Endpoint, *, short: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """Returns what Starlette calls for an endpoint: 503 once the time is over, whatever the database is doing.

    Args:
        function: the endpoint.
        short: it takes well under a millisecond of processor time, so that more threads would only get in each other's
            way: a third more lookups a second, with a third of the latency, than in a pool of forty.
    """

    async def call(request: Request) -> Response:
        limit_s = request.app.state.limits.time_s
        try:
            with anyio.fail_after(limit_s):
                body = await request.body() if request.method == "POST" else b""
                limiter = request.app.state.lane if short else None
                return await anyio.to_thread.run_sync(function, request, body, abandon_on_cancel=True, limiter=limiter)
        except TimeoutError:
            return problem(503, f"the database did not answer within {limit_s:g} s", {"Retry-After": "5"})

    return call
