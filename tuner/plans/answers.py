"""Answers of a lookup as JSON: what the command line prints, the service sends and a client keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.plans.lookup import Answer, Deployed, Located, Rung
from tuner.plans.plan import Plan, PlanState, StoredDocument, StoredPlan
from tuner.slices.names import parse_slice


def head_to_json(found: Answer | Located, stored: StoredPlan | StoredDocument | None) -> dict[str, Any]:
    """Returns everything of an answer but the plan's document, which is long."""
    deployed = found.deployed if isinstance(found, Answer) else None
    return {
        "rung": found.rung.value,
        "stale": found.rung.stale,
        "reasons": list(found.reasons),
        "id": None if stored is None else stored.id,
        "version": None if stored is None else stored.version,
        "stored_at": None if stored is None else stored.stored_at.astimezone(UTC).isoformat(),
        "note": None if stored is None else stored.note,
        "deployed": None if deployed is None else deployed.to_json(),
    }


def to_json(answer: Answer) -> dict[str, Any]:
    """Returns a JSON document."""
    stored = answer.plan
    return head_to_json(answer, stored) | {"plan": None if stored is None else stored.plan.to_json()}


def from_json(document: Mapping[str, Any]) -> Answer:
    """Reads what `to_json` wrote. Raises InvalidValue if it is something else, or its plan is of a newer schema."""
    try:
        plan = document["plan"]
        stored = None
        if plan is not None:
            stored = StoredPlan(
                plan=Plan.from_json(plan),
                id=int(document["id"]),
                version=int(document["version"]),
                state=PlanState.ACTIVE,
                stored_at=datetime.fromisoformat(document["stored_at"]),
                note=str(document["note"]),
            )
        return Answer(
            rung=Rung(document["rung"]),
            plan=stored,
            reasons=tuple(map(str, document["reasons"])),
            deployed=_deployed(document.get("deployed")),
        )
    except InvalidValue:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise InvalidValue(f"not the answer of a lookup: {error!r}") from error


def _deployed(document: Mapping[str, Any] | None) -> Deployed | None:
    if document is None:
        return None
    slice_ = parse_slice(document["slice"])
    return Deployed(
        layout=Layout.from_json(document["layout"]),
        slice=slice_,
        placement=Placement.from_json(document["placement"], slice_),
    )
