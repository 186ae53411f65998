"""Two trials or plans side by side, difference by difference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import site, state
from adapters.web.pages.plan import find_plan
from adapters.web.pages.trial import find_trial
from storage.documents import strict
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.plans.plan import Evidence
from tuner.stores import Store

_LEGAL = "legal: plan-7 for plan 7, trial-3-12 for trial 12 of study 3"
_MOST = 400
_NUMBERS = ("matmul_s", "attention_s", "memory_s", "copy_s", "kernel_s", "exposed_communication_s", "communication_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A trial or a plan, with what is compared.

    Attributes:
        name: as the URL names it.
        title: for people.
        path: where its own page is, as (route, parameters).
        of: workload, slice, toolchain.
        steps: step seconds by evidence.
        numbers: further numbers, with units in their names.
        document: everything else that may differ.
    """

    name: str
    title: str
    path: tuple[str, Mapping[str, int]]
    of: Mapping[str, str]
    steps: Mapping[Evidence, float | None]
    numbers: Mapping[str, float | None]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One leaf in which two documents differ; None where a side has none."""

    path: str
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage:
    """All that the page shows.

    Attributes:
        left, right: what is compared; None until both are named.
        a, b: as they were named.
        steps: (evidence, left, right) of step times; a figure is only compared with one of its own kind.
        numbers: (name, left, right).
        differences: in the documents; `left_out` more are not shown.
    """

    a: str
    b: str
    left: Subject | None = None
    right: Subject | None = None
    steps: tuple[tuple[Evidence, float | None, float | None], ...] = ()
    numbers: tuple[tuple[str, float | None, float | None], ...] = ()
    differences: tuple[Difference, ...] = ()
    left_out: int = 0


def compare(request: Request) -> Response:
    """Shows two trials or plans side by side."""
    a, b = (request.query_params.get(side, "").strip()[:60] for side in "ab")
    if not (a and b):
        return site.answer(request, "compare.html", ComparePage(a=a, b=b))
    store: Store = request.app.state.store
    left, right = read_subject(store, a), read_subject(store, b)
    differences = [*_differences(left.of, right.of), *_differences(left.document, right.document)]
    names = dict.fromkeys((*left.numbers, *right.numbers))
    page = ComparePage(
        a=a,
        b=b,
        left=left,
        right=right,
        steps=tuple((kind, left.steps.get(kind), right.steps.get(kind)) for kind in Evidence),
        numbers=tuple((name, left.numbers.get(name), right.numbers.get(name)) for name in names),
        differences=tuple(differences[:_MOST]),
        left_out=max(0, len(differences) - _MOST),
    )
    return site.answer(request, "compare.html", page)


def read_subject(store: Store, name: str) -> Subject:
    """Returns what a name means. Raises HTTPException: 400 if it means nothing, 404 if there is no such thing."""
    kind, *ids = name.split("-")
    numbers = [state.read_number(kind, part) for part in ids]
    match kind, numbers:
        case "plan", [plan_id]:
            return _plan(store, name, plan_id)
        case "trial", [study_id, number]:
            return _trial(store, name, study_id, number)
    raise HTTPException(400, f"{name!r} names neither a plan nor a trial; {_LEGAL}")


def _plan(store: Store, name: str, plan_id: int) -> Subject:
    stored = find_plan(store, plan_id)
    plan = stored.plan
    return Subject(
        name=name,
        title=f"plan {plan_id}, version {stored.version}",
        path=("plan", {"plan_id": plan_id}),
        of=_of(plan.workload.name, plan.slice.name, str(plan.toolchain)),
        steps={plan.evidence: plan.step_s},
        numbers={"memory_bytes": plan.memory_bytes, **_times(plan.details)},
        document={
            **_candidate(plan.candidate, plan.placement),
            "constraints": plan.constraints.to_json(),
            "arguments": {a.path: " ".join("+".join(axes) or "-" for axes in a.spec) for a in plan.arguments},
        },
    )


def _trial(store: Store, name: str, study_id: int, number: int) -> Subject:
    study, trial = find_trial(store, study_id, number)
    steps = {
        Evidence.BOUND: trial.bound_s,
        Evidence.PREDICTED: trial.predicted_s,
        Evidence.MEASURED: trial.measured_s,
    }
    ended = {"state": trial.state.value, "stage": trial.stage.value}
    if trial.rejection is not None:
        ended |= {"reason": trial.rejection.reason.value, "detail": trial.rejection.detail}
    return Subject(
        name=name,
        title=f"trial {number} of study {study_id}",
        path=("trial", {"study_id": study_id, "number": number}),
        of=_of(study.key.workload.name, study.key.slice.name, str(study.key.toolchain)),
        steps=steps,
        numbers={**trial.numbers, **_times(trial.details)},
        document={
            **_candidate(trial.candidate, trial.placement),
            "constraints": study.key.constraints.to_json(),
            "end": ended,
        },
    )


def _of(workload: str, slice_name: str, toolchain: str) -> dict[str, str]:
    return {"workload": workload, "slice": slice_name, "toolchain": toolchain}


def _candidate(candidate: Candidate, placement: Placement | None) -> dict[str, Any]:
    layout = candidate.layout
    return {
        "mesh": dict(layout.axes),
        "options": dict(layout.options),
        "compiler options": dict(candidate.compiler_options),
        "placement": {
            "in words": "" if placement is None else placement.description,
            "devices": "" if placement is None else " ".join(map(str, placement.devices)),
        },
    }


def _times(details: Mapping[str, Any]) -> dict[str, float | None]:
    found = {name: details.get(name) for name in _NUMBERS}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    a, b = dict(_leaves(left)), dict(_leaves(right))
    return [
        Difference(path=path, left=a.get(path), right=b.get(path))
        for path in dict.fromkeys((*a, *b))
        if a.get(path) != b.get(path)
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path}: {key}" if path else str(key))
    elif isinstance(value, str):
        yield path, value
    else:
        yield path, json.dumps(strict(value), ensure_ascii=False)
