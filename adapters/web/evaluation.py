"""Evaluates which parameters of a study matter, as a process of its own: ``python -m adapters.web.evaluation``.

It reads one JSON document from its standard input, ``{"url": ..., "study_id": ...}``, and writes one to its standard
output: ``{"state": ..., "evaluator": ..., "trials": ..., "shares": [[parameter, share], ...]}``.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

LEAST_TRIALS = 4
"""Fewer say nothing."""

MOST_TRIALS = 50_000
"""Of the best predicted ones that are looked at."""

Point = tuple[Mapping[str, str | int], float]
"""Parameters of a trial and its step seconds."""


def evaluate(points: Sequence[Point]) -> dict[str, Any]:
    """Returns how much of the variation of the step time each parameter explains (PED-ANOVA, Optuna's default)."""
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    finite = [(params, seconds) for params, seconds in points if math.isfinite(seconds)]
    values: dict[str, dict[str | int, None]] = {}
    for params, _ in finite:
        for name, value in params.items():
            values.setdefault(name, {})[value] = None
    # A parameter that some trials lack has no common domain with them.
    varied = {
        name: CategoricalDistribution(tuple(found))
        for name, found in values.items()
        if len(found) > 1 and all(name in params for params, _ in finite)
    }
    if len(finite) < LEAST_TRIALS:
        return {"state": "too-few", "trials": len(finite)}
    if not varied:
        return {"state": "alike", "trials": len(finite)}
    study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: params[name] for name in varied}, distributions=dict(varied), value=seconds
            )
            for params, seconds in finite
        ]
    )
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {
        "state": "ready",
        "evaluator": "PED-ANOVA",
        "trials": len(finite),
        "shares": [[name, float(share)] for name, share in shares.items()],
    }


def parameters(candidate: Mapping[str, Any]) -> dict[str, str | int]:
    """Returns a candidate's document as parameters: sizes of mesh axes, options, compiler options."""
    layout = candidate.get("layout", {})
    out: dict[str, str | int] = {str(name): int(size) for name, size in layout.get("axes", ())}
    out |= {str(name): value for name, value in layout.get("options", {}).items()}
    return out | {str(name): str(value) for name, value in candidate.get("compiler_options", {}).items()}


def main() -> None:
    """Answers the document on the standard input."""
    import storage
    from storage.views.history import coordinates
    from storage.views.view import database_of

    os.nice(10)  # pages go first
    asked = json.load(sys.stdin)
    with storage.open_store(asked["url"], read_only=True) as store:
        found = coordinates(database_of(store), asked["study_id"], limit=MOST_TRIALS)
    json.dump(evaluate([(parameters(trial.candidate), trial.predicted_s) for trial in found]), sys.stdout)


if __name__ == "__main__":
    main()
