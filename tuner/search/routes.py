"""Classes of placements, where the compiled program depends on the placement: v5e slices of more than 16 chips.

Placements with the same direct routes compile to the same program, so one of each class goes to the compiler. Elsewhere
there is one class, and candidates have no placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.network.patterns import Flow
from tuner.network.reach import is_limited
from tuner.placements.default import jax_default
from tuner.placements.families import structures
from tuner.placements.placement import Placement
from tuner.placements.ranking import routing_classes
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.prospects import Prospect
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

MOST_CLASSES = 3
"""Classes of one layout that may be compiled: the fastest by the screened program."""

_LOOKED_AT = 4096
"""Structured placements among which the least blocked one is looked for."""


class Routes:
    """Turns a prospect into one for each class of placements that may win.

    Attributes:
        left_out: classes that were left out, so that the search proves nothing about them.
    """

    def __init__(
        self,
        slice_: Slice,
        calibration: Calibration,
        degraded: Sequence[Degraded] = (),
        *,
        jax: tuple[int, int] = (0, 12),
    ) -> None:
        self._slice = slice_
        self._calibration = calibration
        self._degraded = tuple(degraded)
        self._jax = jax
        self.left_out = 0

    def in_default_order(self, candidate: Candidate) -> Candidate:
        """Returns a candidate compiled in JAX's default order where the program depends on it, as baselines are."""
        if not is_limited(self._slice):
            return candidate
        return replace(candidate, placement=jax_default(self._slice, candidate.layout, jax=self._jax))

    def classes(self, prospect: Prospect) -> tuple[Prospect, ...] | Rejection:
        """Returns the prospects to compile, fastest first, or why no placement of the layout compiles.

        A prospect that has a placement already stays as it is if its collectives have routes there.
        """
        if not is_limited(self._slice):
            return (prospect,)
        candidate = prospect.candidate
        ranker = Ranker(
            prospect.screened.program, self._slice, candidate.layout, self._calibration, degraded=self._degraded
        )
        if candidate.placement is not None:
            refusal = ranker.verdict(candidate.placement)
            return (prospect,) if refusal is None else _screened(refusal)
        found = routing_classes(ranker)
        if not found:
            return self._nowhere(ranker)
        self.left_out += max(0, len(found) - MOST_CLASSES)
        found = found[:MOST_CLASSES]
        # JAX's default order stands for its class, so that a baseline and its layout are one compile.
        default = self.in_default_order(candidate)
        assert default.placement is not None
        direct = ranker.direct(np.array([default.placement.devices, *(ranked.placement.devices for ranked in found)]))
        return tuple(
            replace(
                prospect,
                candidate=default if (row == direct[0]).all() else replace(candidate, placement=ranked.placement),
                estimate_s=prospect.estimate_s + ranked.step_s - found[0].step_s,
            )
            for ranked, row in zip(found, direct[1:], strict=True)
        )

    def _nowhere(self, ranker: Ranker) -> Rejection:
        """Returns what is in the way in the placement where the fewest collectives are blocked."""
        placements = [s.devices for s in islice(structures(self._slice, ranker.layout, frozenset()), _LOOKED_AT)]
        rings = [pattern.flow is Flow.RING for pattern in ranker.patterns]
        blocked = (~ranker.direct(np.stack(placements))[:, rings]).sum(axis=1)
        least = Placement(devices=tuple(placements[int(blocked.argmin())].tolist()))
        refusal = ranker.verdict(least)
        if refusal is None:  # all have routes, over a link that is missing
            return missing_link(self._slice)
        return replace(
            _screened(refusal), detail=f"no placement has routes for all collectives; at the best, {refusal.detail}"
        )


def missing_link(slice_: Slice) -> Rejection:
    """Returns the end of a candidate whose collectives cross a missing link in every placement."""
    return Rejection(
        stage=Stage.PLACE,
        reason=RejectReason.ROUTING,
        detail=f"in every placement on {slice_.name}, collectives cross a link that is missing",
    )


def _screened(refusal: Rejection) -> Rejection:
    return replace(refusal, stage=Stage.SCREEN)
