"""The API described in OpenAPI, for clients and for the tests that hold us to it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from adapters.web.api import reading
from tuner.plans.lookup import Rung
from tuner.plans.plan import PlanState
from tuner.stores import TrialState

_NAME: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": reading.LONGEST,
    "pattern": r"^[A-Za-z0-9_.:=,*-]+$",
}
_TOOLCHAIN = r"^jax=[0-9a-z.]{1,64},jaxlib=[0-9a-z.]{1,64},libtpu=[0-9a-z.]{1,64}(;XLA_FLAGS=[ -:<-~]*)?$"
_LINK: dict[str, Any] = {"type": "string", "pattern": r"^[0-9]{1,3},[0-9]{1,3}:[0-9]{1,3},[0-9]{1,3}=0\.[0-9]{1,6}$"}
_ID: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": reading.LARGEST_ID}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}


def document(request: Request) -> Response:
    """Answers with the description, whose server is where the caller found us."""
    return JSONResponse(description(request.scope.get("root_path", ""), page=request.app.state.limits.page))


def description(root_path: str, *, page: int) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "meshwright",
            "version": "1",
            "description": "Plans of how to lay JAX programs out on TPU slices.",
        },
        "servers": [{"url": root_path or "/"}],
        "paths": {
            "/v1/plans/{model}/{shape}/{slice}": {"get": _lookup()},
            "/v1/plans/{plan_id}": {"get": _plan()},
            "/v1/plans/{plan_id}/promote": {"post": _write("promote", "Put a version back into service as a new one.")},
            "/v1/plans/{plan_id}/retire": {"post": _write("retire", "Take a version out of service.")},
            "/v1/trials": {"get": _trials(page)},
            "/healthz": {"get": _probe("healthz", "Whether the process answers.", away=False)},
            "/readyz": {"get": _probe("readyz", "Whether the database can serve.", away=True)},
            "/metrics": {"get": _metrics()},
        },
        "components": {
            "schemas": {
                "Problem": _PROBLEM,
                "Answer": _ANSWER,
                "Version": _VERSION,
                "Plan": {"type": "object", "required": ["schema_version", "workload", "slice", "candidate"]},
                "Trial": _TRIAL,
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "rung": {"const": Rung.NONE.value},
        "reasons": {"type": "array", "items": {"type": "string"}},
        "nearest": {"type": "array", "items": {"type": "string"}},
    },
}
_ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["rung", "stale", "reasons", "id", "version", "stored_at", "note", "deployed", "plan"],
    "properties": {
        "rung": {"enum": [rung.value for rung in Rung if rung is not Rung.NONE]},
        "stale": {"type": "boolean"},
        "reasons": {"type": "array", "items": {"type": "string"}},
        "id": {"type": ["integer", "null"]},
        "version": {"type": ["integer", "null"]},
        "stored_at": _TEXT_OR_NULL,
        "note": _TEXT_OR_NULL,
        "deployed": {
            "type": ["object", "null"],
            "description": "On the rung baseline: layout and placement that people deploy without a plan.",
        },
        "plan": {"oneOf": [{"$ref": "#/components/schemas/Plan"}, {"type": "null"}]},
    },
}
_VERSION: dict[str, Any] = {
    "type": "object",
    "required": ["id", "version", "state", "stored_at", "note"],
    "properties": {
        "id": {"type": "integer"},
        "version": {"type": "integer"},
        "state": {"enum": [state.value for state in PlanState]},
        "stored_at": {"type": "string", "format": "date-time"},
        "note": {"type": "string"},
        "plan": {"$ref": "#/components/schemas/Plan"},
    },
}
_TRIAL: dict[str, Any] = {
    "type": "object",
    "required": ["number", "state", "stage", "candidate"],
    "properties": {
        "number": {"type": "integer"},
        "state": {"enum": [state.value for state in TrialState]},
        "stage": {"type": "string"},
        "baseline": {"type": "string"},
        "candidate": {"type": "object"},
        "bound_s": _NUMBER_OR_NULL,
        "estimate_s": _NUMBER_OR_NULL,
        "predicted_s": _NUMBER_OR_NULL,
        "measured_s": _NUMBER_OR_NULL,
        "numbers": {"type": "object", "additionalProperties": _NUMBER_OR_NULL},
        "placement": {"type": "string"},
        "rejection": {"type": ["object", "null"]},
        "host": {"type": "string"},
        "started_at": _TEXT_OR_NULL,
        "finished_at": _TEXT_OR_NULL,
    },
}


def _lookup() -> dict[str, Any]:
    return {
        "operationId": "lookup",
        "summary": "The plan of a model, shape and slice, or the next best with the reasons.",
        "parameters": [
            _path("model", _NAME),
            _path("shape", _NAME, "For example 832x480x81; - for a workload without shapes."),
            _path("slice", _NAME, "For example v5e-2x4 or v5litepod-8."),
            _query(
                "toolchain",
                {
                    "type": "string",
                    "maxLength": reading.LONGEST_TOOLCHAIN,
                    "pattern": _TOOLCHAIN,
                },
                "Versions, and ;XLA_FLAGS=... and ;LIBTPU_INIT_ARGS=... where these are set. Without it the answer "
                "says that the toolchain was not checked.",
            ),
            _query("revision", _NAME),
            _query("variant", _NAME, "For example no-guidance or videos=2."),
            _query("reserve_hbm_bytes", {"type": "integer", "minimum": 0, "maximum": reading.LARGEST_BYTES}),
            {
                **_query("link", {"type": "array", "items": _LINK, "maxItems": 8}, "A slow link: 0,0:1,0=0.5."),
                "style": "form",
                "explode": True,
            },
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": _json("A plan, or what people deploy without one.", "Answer"),
            "304": {"description": "The answer that the caller has still stands."},
            **_problems("400", "404", "405", "414", "431", "503"),
        },
    }


def _plan() -> dict[str, Any]:
    return {
        "operationId": "plan",
        "summary": "One stored version.",
        "parameters": [
            _path("plan_id", _ID),
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": _json("The version with its plan.", "Version"),
            "304": {"description": "What the caller has still stands."},
            **_problems("400", "404", "405", "414", "431", "503"),
        },
    }


def _write(name: str, summary: str) -> dict[str, Any]:
    note = {"type": "string", "minLength": 1, "maxLength": reading.LONGEST}
    body = {"type": "object", "properties": {"note": note}, "additionalProperties": False}
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"token": []}],
        "parameters": [_path("plan_id", _ID)],
        "requestBody": {"required": False, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _json("The version that came of it.", "Version"),
            **_problems("400", "401", "403", "404", "405", "413", "414", "431", "503"),
        },
    }


def _trials(page: int) -> dict[str, Any]:
    return {
        "operationId": "trials",
        "summary": "Trials of a study in the order of their numbers, in pages.",
        "parameters": [
            {**_query("study", _ID), "required": True},
            _query("after", {"type": "integer", "minimum": 0, "maximum": reading.LARGEST_ID}),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": page}),
            _query("state", {"enum": [state.value for state in TrialState]}),
        ],
        "responses": {
            "200": {
                "description": "A page; next is what after of the next one is, null on the last.",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "required": ["study", "trials", "next"],
                            "properties": {
                                "study": {"type": "integer"},
                                "trials": {"type": "array", "items": {"$ref": "#/components/schemas/Trial"}},
                                "next": {"type": ["integer", "null"]},
                            },
                        }
                    }
                },
            },
            **_problems("400", "404", "405", "414", "431", "503"),
        },
    }


def _probe(name: str, summary: str, *, away: bool) -> dict[str, Any]:
    body = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
    good = {"description": summary, "content": {"application/json": {"schema": body}}}
    problems = _problems("405", "414", "431", *(("503",) if away else ()))
    return {"operationId": name, "summary": summary, "responses": {"200": good, **problems}}


def _metrics() -> dict[str, Any]:
    text = {"description": "Prometheus's text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "operationId": "metrics",
        "summary": "Metrics.",
        "responses": {"200": text, **_problems("405", "414", "431")},
    }


def _path(name: str, schema: dict[str, Any], what: str = "") -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema} | ({"description": what} if what else {})


def _query(name: str, schema: dict[str, Any], what: str = "") -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema} | ({"description": what} if what else {})


def _json(what: str, schema: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def _problems(*statuses: str) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": "A problem; detail says which.", "content": content} for status in statuses}
