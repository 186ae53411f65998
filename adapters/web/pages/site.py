"""What every page has in common: templates, its JSON twin, links, and tags that save sending the same answer again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from adapters.web.pages import words
from storage.documents import strict

THEME = "theme"
THEMES = ("light", "dark")

_STATIC = Path(__file__).parent.parent / "static"
_PRIVATE = {"Cache-Control": "private, no-cache", "Vary": "Accept, Cookie"}


def answer(request: Request, template: str, page: Any, *, status: int = 200, **more: Any) -> Response:
    """Returns a page, or its JSON twin where that is asked for: by ``.json`` in the path, or by ``Accept``.

    Args:
        request: what asked.
        template: of the page.
        page: a dataclass with all that the page shows; the template finds it as ``page``.
        status: of the answer.
        more: what only the template needs.
    """
    if wants_json(request):
        return json_answer(request, page, status=status)
    return tagged(request, HTMLResponse(render(request, template, page=page, **more), status_code=status))


def fragment(request: Request, template: str, page: Any, **more: Any) -> Response:
    """Returns a part of a page."""
    return tagged(request, HTMLResponse(render(request, template, page=page, **more)))


def json_answer(request: Request, value: Any, *, status: int = 200) -> Response:
    """Returns a value as strict JSON: numbers that are none become the texts ``NaN``, ``Infinity``, ``-Infinity``."""
    body = json.dumps(strict(plain(value)), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return tagged(request, Response(body, status_code=status, media_type="application/json"))


def wants_json(request: Request) -> bool:
    """Returns whether the JSON twin is asked for."""
    if request.url.path.endswith(".json"):
        return True
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def tagged(request: Request, response: Response) -> Response:
    """Returns the answer with a tag of its content, or 304 if the asker has that content already."""
    tag = f'"{hashlib.blake2b(bytes(response.body), digest_size=12).hexdigest()}"'
    headers = {**_PRIVATE, "ETag": tag}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if response.status_code == 200 and tag in known:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def plain(value: Any) -> Any:
    """Returns a value in JSON types: dataclasses become objects, times ISO texts."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if hasattr(value, "to_json") and not isinstance(value, type):
        return plain(_document(value))
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(part) for key, part in value.items()}
    if isinstance(value, Sequence | Set):
        return [plain(part) for part in value]
    return str(value)


def _document(value: Any) -> Any:
    try:
        return value.to_json()
    except TypeError:  # a placement's document depends on a slice; its own fields do not
        return {field.name: getattr(value, field.name) for field in fields(value)}


def prepare() -> None:
    """Compiles every template, so that no reader waits for it."""
    environment = _templates()
    for name in environment.list_templates():
        environment.get_template(name)


def render(request: Request, template: str, **context: Any) -> str:
    """Returns a template's text."""
    return (
        _templates()
        .get_template(template)
        .render(
            request=request,
            url=lambda name, **path: link(request, name, **path),
            page_link=lambda name, **path: lambda query: link(request, name, query=query, **path),
            static=lambda name: _static(request, name),
            theme=theme(request),
            here=here(request),
            **context,
        )
    )


def theme(request: Request) -> str:
    """Returns ``light`` or ``dark`` if the reader chose one, else an empty text: the browser's own setting counts."""
    chosen = request.cookies.get(THEME, "")
    return chosen if chosen in THEMES else ""


def link(request: Request, name: str, query: Mapping[str, Any] | None = None, **path: Any) -> str:
    """Returns the path of a route under the proxy's prefix, with a query of what is not empty."""
    found = _path(request, name, **path)
    asked = urlencode([(key, str(plain(value))) for key, value in (query or {}).items() if value not in (None, "")])
    return f"{found}?{asked}" if asked else found


def here(request: Request) -> str:
    """Returns the path and query that were asked for."""
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def _static(request: Request, name: str) -> str:
    return f"{_path(request, 'static', path=name)}?v={_version(name)}"


def _path(request: Request, name: str, **path: Any) -> str:
    # A page has hundreds of links; the application's own `url_for` tries every route for each of them.
    root = request.scope.get("app_root_path", request.scope.get("root_path", "")).rstrip("/")
    return f"{root}{_route(request.app, name).url_path_for(name, **path)}"


@lru_cache(256)
def _route(app: Starlette, name: str) -> BaseRoute:
    for route in app.routes:
        if getattr(route, "name", None) == name:
            return route
    raise LookupError(f"the application has no route {name!r}")


@cache
def _version(name: str) -> str:
    return hashlib.blake2b((_STATIC / name).read_bytes(), digest_size=6).hexdigest()


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("adapters.web", "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "number",
        "ms",
        "us",
        "gib",
        "mb",
        "times",
        "percent",
        "count",
        "duration",
        "moment",
        "age",
        "shortened",
    ):
        environment.filters[name] = getattr(words, name)
    environment.filters["visible"] = words.visible
    environment.globals["quantity"] = words.quantity
    environment.globals["version"] = _version
    environment.filters["text"] = _text
    return environment


def _text(value: object, limit: int = 110) -> Markup:
    """Returns a text that others wrote, apart from what is around it and not longer than a cell can bear."""
    return Markup("<bdi>{}</bdi>").format(words.shortened(value, limit))
