"""The application: what it serves, and what every answer has in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.web import api, health, metrics, pages, problems
from adapters.web.limits import DEFAULT, LimitBody, Limits
from adapters.web.security import SecurityHeaders
from adapters.web.state import ServiceState


def create_app(
    url: str | None = None, *, token: str | None = None, root_path: str = "", limits: Limits = DEFAULT
) -> Starlette:
    """Returns the service over the database of a URL.

    The database is opened by the first request that needs it, read-only unless there is a token, so that the service
    starts, answers 503 and recovers by itself while the database is away. Every request finds the store at
    ``request.app.state.store``.

    Args:
        url: as `storage.open_store` takes it.
        token: what a request that writes must carry as ``Authorization: Bearer TOKEN``; None refuses every write.
        root_path: the path under which a proxy serves us, without a slash at its end.
        limits: of body, page and time.
    """
    state = ServiceState(url=url, token=token, limits=limits)

    closing = ExitStack()
    closing.callback(state.close)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with closing:
            yield

    app = Starlette(
        routes=[
            *health.routes(),
            *metrics.routes(),
            *api.routes(),
            Mount("/static", StaticFiles(packages=[("adapters.web", "static")]), name="static"),
            *pages.routes(closing),
        ],
        middleware=[
            Middleware(metrics.CountAnswers, metrics=state.metrics),
            Middleware(SecurityHeaders),
            Middleware(LimitBody, limits=limits),
            Middleware(_RootPath, root_path),
        ],
        exception_handlers=problems.handlers(),
        lifespan=lifespan,
    )
    app.state = state
    return app


class _RootPath:
    """Makes links that the application builds begin with the prefix that a proxy strips."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._root_path and scope["type"] in ("http", "websocket") and not scope.get("root_path"):
            path = scope["path"]
            inside = path == self._root_path or path.startswith(f"{self._root_path}/")
            # A proxy may strip the prefix or pass it on; routing expects it in the path.
            scope = dict(scope) | {
                "root_path": self._root_path,
                "path": path if inside else self._root_path + path,
            }
        await self._app(scope, receive, send)
