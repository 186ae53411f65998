"""What a token allows: to say which plan is in service."""

from __future__ import annotations

import hashlib
import hmac
import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from adapters.web.api import reading
from adapters.web.api.lookups import version

_LOG = logging.getLogger(__name__)


def promote(request: Request, body: bytes) -> Response:
    """Puts a version back into service, as a new version."""
    plan_id, note = _asked(request, body, "promoted over HTTP")
    store = request.app.state.store
    stored = store.promote(store.plan(plan_id).plan, note=note)
    _LOG.info("plan %d promoted as plan %d: %s", plan_id, stored.id, note)
    return JSONResponse(version(stored))


def retire(request: Request, body: bytes) -> Response:
    """Takes a version out of service."""
    plan_id, note = _asked(request, body, "retired over HTTP")
    stored = request.app.state.store.retire(plan_id, note=note)
    _LOG.info("plan %d retired: %s", plan_id, note)
    return JSONResponse(version(stored))


def require_token(request: Request) -> None:
    """Refuses a request without the service's token: 403 if it takes no writes at all, else 401."""
    expected = request.app.state.token
    if expected is None:
        raise HTTPException(403, "this service is read-only: it was started without --token-file")
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Digests are of one length, so the time of the comparison says nothing of the token.
    same = hmac.compare_digest(_digest(given.strip()), _digest(expected))
    if scheme.lower() != "bearer" or not same:
        raise HTTPException(401, "this needs the service's token", headers={"WWW-Authenticate": "Bearer"})


def _asked(request: Request, body: bytes, default_note: str) -> tuple[int, str]:
    require_token(request)
    reading.only(request.query_params, ())
    plan_id = reading.number(request.path_params["plan_id"], "plan id", least=1, most=reading.LARGEST_ID)
    return plan_id, reading.note(body, default_note)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
