"""Trials over HTTP, in pages by key: a page costs the same however many came before it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from adapters.web.api import reading
from adapters.web.problems import problem
from tuner.errors import InvalidValue
from tuner.stores import Trial, TrialState

PAGE = 100


def trials(request: Request, body: bytes) -> Response:
    """Answers with trials of a study in the order of their numbers; ``next`` is what ``after`` of the next page is."""
    query = request.query_params
    reading.only(query, ("study", "after", "limit", "state"))
    if "study" not in query:
        raise InvalidValue("study is missing: the id of a study, for example study=1")
    study = reading.integer(query, "study", 0, least=1, most=reading.LARGEST_ID)
    after = reading.integer(query, "after", -1, most=reading.LARGEST_ID)
    limit = reading.integer(query, "limit", PAGE, least=1, most=request.app.state.limits.page)
    states = [state.value for state in TrialState]
    state = query.get("state")
    if state is not None and state not in states:
        raise InvalidValue(f"state is {state[: reading.LONGEST]!r}; legal: {', '.join(states)}")
    try:
        found = request.app.state.store.trials(
            study, state=None if state is None else TrialState(state), after=after, limit=limit
        )
    except KeyError:
        return problem(404, f"no study {study}")
    following = found[-1].number if len(found) == limit else None
    return JSONResponse({"study": study, "trials": [document(trial) for trial in found], "next": following})


def document(trial: Trial) -> dict[str, Any]:
    """Returns a trial as strict JSON; numbers that are none are null."""
    rejection = trial.rejection
    return {
        "number": trial.number,
        "state": trial.state.value,
        "stage": trial.stage.value,
        "baseline": trial.baseline,
        "candidate": trial.candidate.to_json(),
        "bound_s": _finite(trial.bound_s),
        "estimate_s": _finite(trial.estimate_s),
        "predicted_s": _finite(trial.predicted_s),
        "measured_s": _finite(trial.measured_s),
        "numbers": {name: _finite(value) for name, value in trial.numbers.items()},
        "placement": "" if trial.placement is None else trial.placement.description,
        "rejection": None
        if rejection is None
        else {"stage": rejection.stage.value, "reason": rejection.reason.value, "detail": rejection.detail},
        "host": trial.host,
        "started_at": None if trial.started_at is None else trial.started_at.isoformat(),
        "finished_at": None if trial.finished_at is None else trial.finished_at.isoformat(),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None
