"""Light or dark, as the reader chose; kept in a cookie, as no script of ours runs in a page."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from adapters.web.pages import site
from tuner.errors import InvalidValue

_YEAR_S = 365 * 24 * 3600


async def choose(request: Request) -> Response:
    """Keeps the reader's choice and goes back to the page that it was made on."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    chosen = form.get(site.THEME, [""])[0]
    if chosen not in ("", *site.THEMES):
        raise InvalidValue(f"theme={chosen[:40]!r} is not known; legal: {', '.join(site.THEMES)}, or nothing")
    home = site.link(request, "overview")
    back = form.get("back", [""])[0]
    # Only to a page of ours: `//elsewhere` and `/\elsewhere` lead away.
    safe = back.startswith(home) and not back.startswith(("//", "/\\")) and back.isprintable()
    response = RedirectResponse(back if safe else home, status_code=303)
    root = request.scope.get("root_path", "") or "/"
    if chosen:
        response.set_cookie(site.THEME, chosen, max_age=_YEAR_S, path=root, httponly=True, samesite="lax")
    else:
        response.delete_cookie(site.THEME, path=root)
    return response
