"""Lookups over HTTP."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from adapters.models.known import informed
from adapters.web.api import reading
from adapters.web.problems import problem
from tuner.plans import answers
from tuner.plans.lookup import Rung
from tuner.plans.plan import StoredDocument, StoredPlan


def lookup(request: Request, body: bytes) -> Response:
    """Answers with a plan and the rung that it stands on: 200, or 404 with the reasons if there is nothing at all."""
    started = time.perf_counter()
    query = reading.lookup(request.path_params, request.query_params)
    store, kept = request.app.state.store, request.app.state.kept
    located = store.locate(query)
    plan = None if located.plan_id is None else kept.read(located.plan_id)
    if plan is not None and located.rung is Rung.EXACT:
        # There is nothing more to say, so the plan is passed on as it is stored.
        request.app.state.metrics.looked_up(located.rung, time.perf_counter() - started)
        return _conditional(request, answers.head_to_json(located, plan.document), plan.body)
    answer = informed(query, located.answer(None if plan is None else plan.stored))
    request.app.state.metrics.looked_up(answer.rung, time.perf_counter() - started)
    if answer.rung is Rung.NONE:
        return problem(404, "; ".join(answer.reasons), rung=answer.rung.value, reasons=list(answer.reasons))
    body = b"null" if plan is None or answer.plan is None else plan.body
    return _conditional(request, answers.head_to_json(answer, answer.plan), body)


def plan(request: Request, body: bytes) -> Response:
    """Answers with one stored version."""
    reading.only(request.query_params, ())
    plan_id = reading.number(request.path_params["plan_id"], "plan id", least=1, most=reading.LARGEST_ID)
    # What may have changed about a version, whether it is in service, is not kept.
    stored = request.app.state.store.document(plan_id)
    return _conditional(request, version(stored), stored.text.encode())


def version(stored: StoredPlan | StoredDocument) -> dict[str, Any]:
    """Returns what is known of a version beside its document."""
    return {
        "id": stored.id,
        "version": stored.version,
        "state": stored.state.value,
        "stored_at": stored.stored_at.isoformat(),
        "note": stored.note,
    }


def _conditional(request: Request, head: dict[str, Any], plan_body: bytes) -> Response:
    """Answers with a head and a plan in one JSON object, or with 304 to someone who has it."""
    text = json.dumps(head, ensure_ascii=False, allow_nan=False).encode()
    # The plan is named by its id in the head and never changes, so the head stands for all.
    tag = f'"{hashlib.sha256(text).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in _tags(request.headers.getlist("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(text[:-1] + b', "plan": ' + plan_body + b"}", media_type="application/json", headers=headers)


def _tags(values: Iterable[str]) -> set[str]:
    return {part.strip().removeprefix("W/") for value in values for part in value.split(",")}
