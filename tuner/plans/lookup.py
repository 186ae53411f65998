"""The lookup ladder: from the plan that fits exactly down to none, always with the rung and the reasons.

`find` works on any source of active plans, so that a database, a service's client and an exported file answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.plans.plan import Constraints, StoredPlan
from tuner.plans.toolchain import Toolchain


class Rung(StrEnum):
    """Where a lookup stood, best first. Values are served: only add, never remove."""

    EXACT = "exact"
    UNCHECKED = "unchecked"  # as exact, but the caller named no toolchain
    STALE_TOOLCHAIN = "stale-toolchain"
    NEAR_SHAPE = "near-shape"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a deploy asks for. `toolchain` None means that it was not checked; `revision` None means any."""

    model: str
    shape: str
    slice_name: str
    variant: str = ""
    toolchain: Toolchain | None = None
    revision: str | None = None
    constraints: Constraints = Constraints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan (or None), the rung it stands on, and one sentence for each thing that the caller should know."""

    rung: Rung
    plan: StoredPlan | None
    reasons: tuple[str, ...] = ()

    @property
    def stale(self) -> bool:
        """True if the plan was made for something else than what was asked."""
        return self.rung in (Rung.STALE_TOOLCHAIN, Rung.NEAR_SHAPE)


def find(query: Query, active: Callable[[str, str], Sequence[StoredPlan]]) -> Answer:
    """Goes down the ladder.

    Args:
        query: what is asked for.
        active: given a model and a slice name, returns the active plans of every shape, newest first.
    """
    plans = [
        stored for stored in active(query.model, query.slice_name) if stored.plan.workload.variant == query.variant
    ]
    reasons: list[str] = []
    if query.revision is not None:
        kept = [stored for stored in plans if stored.plan.workload.revision == query.revision]
        if plans and not kept:
            known = sorted({stored.plan.workload.revision for stored in plans})
            reasons.append(
                f"no plan for revision {query.revision!r}; there are plans for {', '.join(map(repr, known))}"
            )
        plans = kept
    fitting = [stored for stored in plans if _respects(stored, query.constraints)]
    if plans and not fitting:
        reasons.append(
            f"no plan keeps {query.constraints.reserve_hbm_bytes} bytes of HBM free under objective "
            f"{query.constraints.objective!r} with {_links(query.constraints)}"
        )
    same = [stored for stored in fitting if stored.plan.workload.shape == query.shape]
    if same:
        return _same_shape(query, same, reasons)
    if fitting:
        nearest = min(fitting, key=lambda stored: _distance(query.shape, stored.plan.workload.shape))
        reasons.append(
            f"no plan for shape {query.shape}; this one was made for {nearest.plan.workload.shape}: check that it is "
            "legal and fits before use"
        )
        reasons += _changes(nearest, query.toolchain)
        return Answer(rung=Rung.NEAR_SHAPE, plan=nearest, reasons=tuple(reasons))
    if not reasons:
        variant = f" ({query.variant})" if query.variant else ""
        reasons.append(f"no plan of {query.model}{variant} for {query.slice_name} at any shape")
    return Answer(rung=Rung.NONE, plan=None, reasons=tuple(reasons))


def _same_shape(query: Query, same: Sequence[StoredPlan], reasons: list[str]) -> Answer:
    if query.toolchain is None:
        reasons.append(f"the toolchain was not checked; the plan was made with {same[0].plan.toolchain}")
        return Answer(rung=Rung.UNCHECKED, plan=same[0], reasons=tuple(reasons))
    for stored in same:
        if stored.plan.toolchain.digest == query.toolchain.digest:
            return Answer(rung=Rung.EXACT, plan=stored, reasons=tuple(reasons))
    reasons += _changes(same[0], query.toolchain)
    return Answer(rung=Rung.STALE_TOOLCHAIN, plan=same[0], reasons=tuple(reasons))


def _respects(stored: StoredPlan, wanted: Constraints) -> bool:
    made = stored.plan.constraints
    # A plan that keeps more memory free than asked for also keeps what was asked for.
    return made.purpose == wanted.purpose and made.reserve_hbm_bytes >= wanted.reserve_hbm_bytes


def _links(constraints: Constraints) -> str:
    return f"links {', '.join(constraints.links)}" if constraints.links else "all links at their full rate"


def _changes(stored: StoredPlan, toolchain: Toolchain | None) -> tuple[str, ...]:
    if toolchain is None:
        return ()
    return stored.plan.toolchain.fingerprint.differences(toolchain.fingerprint)


def _distance(wanted: str, made: str) -> tuple[float, str]:
    """Orders shapes by how far their token counts are apart; shapes of other ranks come last."""
    try:
        a, b = (tuple(map(int, shape.split("x"))) for shape in (wanted, made))
    except ValueError:
        return (float("inf"), made)
    if len(a) != len(b) or min(*a, *b) <= 0:
        return (float("inf"), made)
    ratio = 1.0
    for p, q in zip(a, b, strict=True):
        ratio *= max(p, q) / min(p, q)
    return (ratio, made)
