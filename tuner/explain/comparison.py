"""A plan beside a person's own choice, each under today's model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.errors import InvalidValue
from tuner.explain.parts import Part, beside
from tuner.layouts.layout import Candidate, Layout
from tuner.network.cost import Degraded
from tuner.network.reach import is_limited
from tuner.placements.default import jax_default, row_major
from tuner.placements.placement import Placement
from tuner.placements.ranking import rank_with
from tuner.program.program import Program
from tuner.rejections import Rejection
from tuner.slices.slice import Slice
from tuner.timeline.prediction import Prediction
from tuner.timeline.ranker import Ranker

ANOTHER_PROGRAM = "it compiles to another program: other collectives have direct routes there"


class Where(StrEnum):
    """Placements by name."""

    DEFAULT = "default"  # JAX's order for the mesh
    ROW_MAJOR = "row-major"
    BEST = "best"  # the fastest that is found for the program
    PLAN = "plan"  # the plan's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: what it is, for example ``plan 3`` or ``trial 7``.
        candidate: layout and compiler options.
        placement: where its mesh lies; None if it was rejected before it was placed.
        prediction: its step; None if it does not run, and `reason` says why.
        memory_bytes: of one device at the peak; None if it is not known.
    """

    name: str
    candidate: Candidate
    placement: Placement | None
    prediction: Prediction | None
    memory_bytes: int | None
    reason: str = ""

    def to_json(self, slice_: Slice) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "name": self.name,
            "candidate": self.candidate.to_json(),
            "placement": None if self.placement is None else self.placement.to_json(slice_),
            "step_s": None if self.prediction is None else self.prediction.step_s,
            "prediction": None if self.prediction is None else self.prediction.to_json(),
            "memory_bytes": self.memory_bytes,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A plan and a person's own choice on one slice; steps are predicted."""

    slice: Slice
    plan: Side
    own: Side

    @property
    def parts(self) -> tuple[Part, ...]:
        """Both timelines beside each other, what the own choice loses most by first."""
        return beside(self.plan.prediction, self.own.prediction)

    @property
    def speedup(self) -> float | None:
        """How many times faster the plan is; None if either does not run."""
        if self.plan.prediction is None or self.own.prediction is None:
            return None
        return self.own.prediction.step_s / self.plan.prediction.step_s

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "slice": self.slice.name,
            "evidence": "predicted",
            "plan": self.plan.to_json(self.slice),
            "own": self.own.to_json(self.slice),
            "speedup_of_the_plan": self.speedup,
            "parts": [part.to_json() for part in self.parts],
        }


def place(
    name: str,
    candidate: Candidate,
    program: Program,
    where: str,
    *,
    slice_: Slice,
    calibration: Calibration,
    links: Sequence[Degraded] = (),
    jax: tuple[int, int] = (0, 12),
    plans: Placement | None = None,
) -> Side:
    """Returns a compiled candidate in a placement.

    Args:
        name: of the side.
        candidate: that was compiled to `program`.
        program: the facts.
        where: one of `Where`, or device indices of the slice in the order of the mesh: ``0,1,3,2``.
        slice_: with its `calibration` and the `links` that are slow or missing.
        jax: version whose default order is meant.
        plans: the plan's own placement.

    Raises InvalidValue if `where` is none of these.
    """
    ranker = Ranker(program, slice_, candidate.layout, calibration, links)
    match where:
        case Where.DEFAULT | Where.ROW_MAJOR:
            placement = ordered(where, slice_, candidate.layout, jax=jax)
        case Where.BEST:
            placement = rank_with(ranker, jax=jax, like=candidate.placement).best[0].placement
        case Where.PLAN if plans is not None:
            placement = plans
        case _:
            placement = _listed(where, slice_)
    memory = program.memory
    reason = why_not(ranker, placement, like=candidate.placement)
    return Side(
        name=name,
        candidate=candidate,
        placement=placement,
        prediction=None if reason else ranker.predict(placement),
        memory_bytes=None if memory is None else memory.total_bytes,
        reason=reason,
    )


def ordered(where: str, slice_: Slice, layout: Layout, *, jax: tuple[int, int] = (0, 12)) -> Placement:
    """Returns row-major, or else JAX's default order for a layout's mesh: the placements that no program decides."""
    return row_major(slice_) if where == Where.ROW_MAJOR else jax_default(slice_, layout, jax=jax)


def refused(name: str, candidate: Candidate, rejection: Rejection) -> Side:
    """Returns a candidate that was rejected before it was placed."""
    reason = f"{rejection.reason}: {rejection.detail}"
    return Side(name=name, candidate=candidate, placement=None, prediction=None, memory_bytes=None, reason=reason)


def why_not(ranker: Ranker, placement: Placement, *, like: Placement | None = None) -> str:
    """Returns why a program does not run in a placement; empty if it does.

    `like` is the placement that it was compiled under, where the program depends on it.
    """
    refusal = ranker.verdict(placement)
    if refusal is not None:
        return refusal.detail
    devices = np.asarray([placement.devices])
    if not math.isfinite(float(ranker.step_s(devices)[0])):
        return "it sends over a link that is missing"
    if like is not None and is_limited(ranker.slice_):
        compiled = ranker.direct(np.asarray([like.devices]))
        if not (ranker.direct(devices) == compiled).all():
            return ANOTHER_PROGRAM
    return ""


def _listed(where: str, slice_: Slice) -> Placement:
    legal = f"legal: {', '.join(Where)}, or the {slice_.num_devices} device indices in the order of the mesh: 0,1,..."
    numbers = where.split(",")
    if not all(number.strip().isdecimal() for number in numbers) or len(numbers) != slice_.num_devices:
        raise InvalidValue(f"placement {where!r} is none for {slice_.name}; {legal}")
    return Placement(devices=tuple(map(int, numbers)), description="as listed")
