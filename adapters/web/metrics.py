"""What an operator watches, in Prometheus's text format."""

from __future__ import annotations

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.errors import StoreError
from tuner.plans.lookup import Rung

_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0)


class Metrics:
    """The counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = Counter("meshwright_http_answers", "Answers.", ["status"], registry=self.registry)
        self._lookups = Counter("meshwright_lookups", "Lookups.", ["rung"], registry=self.registry)
        self._seconds = Histogram(
            "meshwright_lookup_seconds", "Time of a lookup.", registry=self.registry, buckets=_BUCKETS_S
        )
        self._up = Gauge("meshwright_database_up", "Whether the database can serve.", registry=self.registry)
        for rung in Rung:
            self._lookups.labels(rung.value)

    def looked_up(self, rung: Rung, seconds: float) -> None:
        """Counts a lookup."""
        self._lookups.labels(rung.value).inc()
        self._seconds.observe(seconds)

    def answered(self, status: int) -> None:
        """Counts an answer."""
        self._answers.labels(str(status)).inc()

    def text(self, *, up: bool) -> bytes:
        """Returns the exposition."""
        self._up.set(up)
        return generate_latest(self.registry)


def routes() -> list[BaseRoute]:
    """Returns the route of the exposition."""
    return [Route("/metrics", exposition, name="metrics")]


def exposition(request: Request) -> Response:
    """Answers with the metrics; that the database is away is one of them."""
    state: Any = request.app.state
    try:
        state.store.check()
        up = True
    except StoreError:
        up = False
    return Response(state.metrics.text(up=up), media_type=CONTENT_TYPE_LATEST)


class CountAnswers:
    """Counts every answer by its status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and counts its answer."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(message["status"])
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)
