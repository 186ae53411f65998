"""The lookup ladder: from the plan that fits exactly down to none, always with the rung and the reasons.

The ladder itself looks at headers only, so that a store can go down it without reading a document, and a database, a
service's client and an exported file answer alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.plans.near import NOT_CHECKED, memory_sentence, sizes
from tuner.plans.plan import Constraints, Evidence, Plan, StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.slices.slice import Slice


class Rung(StrEnum):
    """Where a lookup stood, best first. Values are served: only add, never remove."""

    EXACT = "exact"
    UNCHECKED = "unchecked"  # as exact, but the caller named no toolchain
    STALE_TOOLCHAIN = "stale-toolchain"
    NEAR_SHAPE = "near-shape"
    BASELINE = "baseline"  # no plan: what people deploy today
    NONE = "none"

    @property
    def stale(self) -> bool:
        """True if the plan was made for something else than what was asked."""
        return self in (Rung.STALE_TOOLCHAIN, Rung.NEAR_SHAPE)


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
class Header:
    """What the ladder looks at of an active plan of the asked model, slice and variant.

    Attributes:
        id: of the stored version; a higher one is newer.
        purpose: objective and links, as `Constraints.purpose` shortens them.
        measured: whether devices were timed.
    """

    id: int
    shape: str
    revision: str
    purpose: str
    reserve_hbm_bytes: int
    toolchain_digest: str
    measured: bool = False

    @classmethod
    def of(cls, stored: StoredPlan) -> Header:
        """Returns the header of a stored plan."""
        plan = stored.plan
        return cls(
            id=stored.id,
            shape=plan.workload.shape,
            revision=plan.workload.revision,
            purpose=plan.constraints.purpose,
            reserve_hbm_bytes=plan.constraints.reserve_hbm_bytes,
            toolchain_digest=plan.toolchain.digest,
            measured=plan.evidence is Evidence.MEASURED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What people deploy where there is no plan: a layout in JAX's default device order, without evidence."""

    layout: Layout
    slice: Slice
    placement: Placement

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "layout": self.layout.to_json(),
            "slice": self.slice.name,
            "placement": self.placement.to_json(self.slice),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan (or None), the rung it stands on, and one sentence for each thing that the caller should know.

    On the rung `Rung.BASELINE`, which takes somebody who knows the model, there is `deployed` instead of a plan.
    """

    rung: Rung
    plan: StoredPlan | None
    reasons: tuple[str, ...] = ()
    deployed: Deployed | None = None

    @property
    def stale(self) -> bool:
        """True if the plan was made for something else than what was asked."""
        return self.rung.stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Which plan answers a query (None on the last rung), before the plan itself is read."""

    query: Query
    rung: Rung
    plan_id: int | None
    reasons: tuple[str, ...] = ()

    def sentences(self, plan: Plan | None) -> tuple[str, ...]:
        """Returns what the caller should know, given the plan that was located."""
        if plan is None:
            return self.reasons
        said, toolchain = list(self.reasons), self.query.toolchain
        if self.rung is Rung.NEAR_SHAPE:
            reserve_bytes = self.query.constraints.reserve_hbm_bytes
            said += [memory_sentence(plan, self.query.shape, reserve_bytes=reserve_bytes), NOT_CHECKED]
        if toolchain is None:
            said.append(f"the toolchain was not checked; the plan was made with {plan.toolchain}")
        elif self.rung is not Rung.EXACT:
            said += plan.toolchain.fingerprint.differences(toolchain.fingerprint)
        return tuple(said)

    def answer(self, stored: StoredPlan | None) -> Answer:
        """Returns the answer, given the plan that was located."""
        return Answer(rung=self.rung, plan=stored, reasons=self.sentences(stored.plan if stored else None))


def locate(query: Query, headers: Iterable[Header]) -> Located:
    """Goes down the ladder. On one rung a measured plan goes before a predicted one, and a newer one before an older.

    A plan that is predicted for the asked toolchain goes before one that was measured under another, which the answer
    names: what was timed is not the program that the asked compiler makes.

    Args:
        query: what is asked for.
        headers: of the active plans of that model, slice and variant, in any order. Those of other shapes are looked
            at only if none is of the asked one and fits.
    """
    everything = sorted(headers, key=lambda header: (not header.measured, -header.id))
    known = [header for header in everything if query.revision in (None, header.revision)]
    reasons: list[str] = []
    if everything and not known:
        there = sorted({header.revision for header in everything})
        reasons.append(f"no plan for revision {query.revision!r}; there are plans for {', '.join(map(repr, there))}")
    fitting = [header for header in known if _respects(header, query.constraints)]
    if known and not fitting:
        reasons.append(
            f"no plan keeps {query.constraints.reserve_hbm_bytes} bytes of HBM free under objective "
            f"{query.constraints.objective!r} with {_links(query.constraints)}"
        )
    same = [header for header in fitting if header.shape == query.shape]
    asked = query.toolchain.digest if query.toolchain else None
    if same:
        return _same_shape(query, same, asked)
    if fitting:
        wanted = sizes(query.shape)
        nearest = min(fitting, key=lambda header: (*_distance(wanted, header.shape), header.toolchain_digest != asked))
        reasons.append(f"no plan for shape {query.shape}; this one was made for {nearest.shape}")
        return Located(query=query, rung=Rung.NEAR_SHAPE, plan_id=nearest.id, reasons=tuple(reasons))
    if not everything:
        variant = f" ({query.variant})" if query.variant else ""
        reasons.append(f"no plan of {query.model}{variant} for {query.slice_name} at any shape")
    return Located(query=query, rung=Rung.NONE, plan_id=None, reasons=tuple(reasons))


def find(query: Query, active: Callable[[str, str], Sequence[StoredPlan]]) -> Answer:
    """Goes down the ladder over plans that are at hand.

    Args:
        query: what is asked for.
        active: given a model and a slice name, returns the active plans of every shape and variant.
    """
    plans = [s for s in active(query.model, query.slice_name) if s.plan.workload.variant == query.variant]
    located = locate(query, map(Header.of, plans))
    return located.answer(next((stored for stored in plans if stored.id == located.plan_id), None))


_MEASURED_ELSEWHERE = (
    "plan {id} was measured, under another toolchain; this one is predicted for the asked toolchain and goes first, "
    "because what was timed is not the program that this compiler makes"
)
_MEASURED_FIRST = "plan {id} was measured and goes before plan {newer}, which is newer and only predicted"


def _same_shape(query: Query, same: Sequence[Header], asked: str | None) -> Located:
    first, own = same[0], next((header for header in same if header.toolchain_digest == asked), None)
    if own is not None:
        others = () if own.measured or not first.measured else (_MEASURED_ELSEWHERE.format(id=first.id),)
        return Located(query=query, rung=Rung.EXACT, plan_id=own.id, reasons=others)
    newest = max(same, key=lambda header: header.id)
    passed = () if newest is first else (_MEASURED_FIRST.format(id=first.id, newer=newest.id),)
    rung = Rung.UNCHECKED if query.toolchain is None else Rung.STALE_TOOLCHAIN
    return Located(query=query, rung=rung, plan_id=first.id, reasons=passed)


def _respects(header: Header, wanted: Constraints) -> bool:
    # A plan that keeps more memory free than asked for also keeps what was asked for.
    return header.purpose == wanted.purpose and header.reserve_hbm_bytes >= wanted.reserve_hbm_bytes


def _links(constraints: Constraints) -> str:
    return f"links {', '.join(constraints.links)}" if constraints.links else "all links at their full rate"


def _distance(wanted: tuple[int, ...] | None, made: str) -> tuple[float, str]:
    """Orders shapes by how far their token counts are apart; shapes of other ranks come last."""
    found = sizes(made)
    if wanted is None or found is None or len(wanted) != len(found):
        return (math.inf, made)
    ratio = 1.0
    for p, q in zip(wanted, found, strict=True):
        ratio *= p / q if p > q else q / p
    return (ratio, made)
