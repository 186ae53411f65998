"""The API under ``/v1``: lookups, trials, and, with a token, which plan is in service."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from adapters.web.api import lookups, trials, writes
from adapters.web.api.endpoint import endpoint
from adapters.web.api.openapi import document


def routes() -> list[BaseRoute]:
    """Returns the routes of the API."""
    return [
        Route("/openapi.json", document, name="openapi"),
        Route("/v1/plans/{model}/{shape}/{slice}", endpoint(lookups.lookup, short=True), name="v1.lookup"),
        Route("/v1/plans/{plan_id}", endpoint(lookups.plan, short=True), name="v1.plan"),
        Route("/v1/plans/{plan_id}/promote", endpoint(writes.promote), methods=["POST"], name="v1.promote"),
        Route("/v1/plans/{plan_id}/retire", endpoint(writes.retire), methods=["POST"], name="v1.retire"),
        Route("/v1/trials", endpoint(trials.trials), name="v1.trials"),
    ]
