"""How much a request may send, ask for and take."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.web.problems import problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one request.

    Attributes:
        body_bytes: of what it sends.
        target_bytes: of its path and query.
        header_bytes: of all its headers together.
        page: of the rows that one answer lists.
        time_s: that it may take, where an answer does not stream.
    """

    body_bytes: int = 1 << 20
    target_bytes: int = 8 << 10
    header_bytes: int = 32 << 10
    page: int = 1000
    time_s: float = 10.0


DEFAULT = Limits()


class _TooLarge(Exception):
    """The body went over the limit while it was read."""


class LimitBody:
    """Refuses a request whose target, headers or body are too long: 414, 431 or 413."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, counting what it sends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if len(scope["path"]) + len(scope["query_string"]) > self._limits.target_bytes:
            detail = f"path and query are longer than {self._limits.target_bytes} bytes"
            await problem(414, detail)(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            await problem(431, f"the headers are longer than {self._limits.header_bytes} bytes")(scope, receive, send)
            return
        refusal = problem(413, f"the body is larger than {self._limits.body_bytes} bytes")
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limits.body_bytes:
            await refusal(scope, receive, send)
            return
        received, started = 0, False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limits.body_bytes:
                raise _TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except _TooLarge:
            if not started:
                await refusal(scope, receive, send)
