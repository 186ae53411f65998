"""Errors as answers: problem documents (RFC 9457), or a plain page where a browser asked for one."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tuner.errors import InvalidValue, PlanNotFound, StoreError, UnknownName

_LOG = logging.getLogger(__name__)
_RETRY_S = "5"

Handler = Callable[[Request, Any], Response]


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Returns a problem document."""
    return JSONResponse(
        {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more},
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/problem+json",
    )


def handlers() -> dict[Any, Any]:
    """Returns what answers each kind of exception; nothing of the inside is told but our own errors' texts."""
    return {
        HTTPException: lambda request, error: answer(request, error.status_code, error.detail, headers=error.headers),
        PlanNotFound: lambda request, error: answer(request, 404, str(error)),
        UnknownName: lambda request, error: answer(request, 404, str(error), nearest=list(error.nearest)),
        InvalidValue: lambda request, error: answer(request, 400, str(error)),
        StoreError: _away,
        Exception: lambda request, error: answer(request, 500, "an error of the service; its log says more"),
    }


def answer(
    request: Request, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """Returns a problem document, or a page with the same text if a browser asked for one of the pages."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return problem(status, detail, headers, **more)
    title = HTTPStatus(status).phrase
    page = f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{html.escape(detail)}</p>"
    return HTMLResponse(page, status_code=status, headers=dict(headers or {}))


def _away(request: Request, error: StoreError) -> Response:
    _LOG.warning("%s %s: %s", request.method, request.url.path, error)
    return answer(request, 503, f"the database cannot serve this: {error}", headers={"Retry-After": _RETRY_S})
