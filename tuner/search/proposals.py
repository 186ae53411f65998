"""Proposals: what an adviser's sampler wants to try, judged by the funnel until one is legal and new."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.network.reach import is_limited
from tuner.placements.canonical import Canon
from tuner.placements.placement import Placement
from tuner.placements.ranking import ordered_axes
from tuner.ports import Workload
from tuner.search.ledger import Ledger
from tuner.search.prospects import Prospect
from tuner.search.sampler import Adviser
from tuner.search.screen import ScreenStage
from tuner.search.trials import PROPOSED
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

MOST_DRAWS = 100
"""A sampler that proposes so many known or illegal candidates in a row is not asked further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A prospect and the placement that it is wanted under."""

    prospect: Prospect
    placement: Placement


@dataclass(slots=True)
class _Screened:
    """What proposals of one layout share: its screened program, which placements are the same to it, those tried."""

    ranker: Ranker
    canon: Canon
    ordered: frozenset[str]
    classes: list[tuple[NDArray[np.bool_], Prospect]]
    tried: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls, classes: Sequence[Prospect], slice_: Slice, calibration: Calibration, degraded: Sequence[Degraded]
    ) -> _Screened:
        """Builds it from the prospects of a layout, one for each class of placements."""
        ranker = Ranker(classes[0].screened.program, slice_, classes[0].candidate.layout, calibration, degraded)
        canon = Canon(slice_, ranker.patterns, symmetric=not degraded)
        screened = cls(ranker=ranker, canon=canon, ordered=ordered_axes(ranker), classes=[])
        anywhere = Placement(devices=tuple(range(slice_.num_devices)))
        screened.classes += [(screened.direct(p.candidate.placement or anywhere), p) for p in classes]
        return screened

    def key(self, placement: Placement) -> int:
        """Returns the same number for placements that are the same to the program."""
        return int(self.canon.keys(np.array([placement.devices]))[0])

    def direct(self, placement: Placement) -> NDArray[np.bool_]:
        """Returns which collectives have direct routes; placements with the same answers compile to one program."""
        return np.asarray(self.ranker.direct(np.array([placement.devices]))[0])


class Proposals:
    """Draws from an adviser.

    Args:
        workload: judges layouts.
        slice_: where they are placed.
        screen: judges candidates.
        ledger: knows what was tried.
        adviser: proposes.
        calibration: constants of the slice's generation.
        degraded: links that run slower than the others.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        slice_: Slice,
        screen: ScreenStage,
        ledger: Ledger,
        adviser: Adviser,
        calibration: Calibration,
        degraded: Sequence[Degraded] = (),
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._screen = screen
        self._ledger = ledger
        self._adviser = adviser
        self._calibration = calibration
        self._degraded = tuple(degraded)
        self._screened: dict[str, _Screened] = {}

    def draw(self, busy: Collection[str] = ()) -> Proposal | None:
        """Returns a proposal that is legal and new; None if the sampler has no more of them.

        Digests of candidates that are at the compiler are `busy`: they are proposed again when their program is there.

        Candidates that the screen, if it is asked here, rejects become trials on the way.
        """
        for _ in range(MOST_DRAWS):
            candidate = self._adviser.propose(self._legal)
            if candidate is None:
                return None
            screened = self._look(candidate)
            if screened is None:
                continue
            placement = self._adviser.place(candidate.layout, screened.ordered).placement()
            if is_limited(self._slice) and screened.ranker.verdict(placement) is not None:
                continue
            key = screened.key(placement)
            if key in screened.tried:
                continue
            prospect = self._prospect(candidate, screened, placement)
            if prospect.candidate.digest in busy:
                continue
            screened.tried.add(key)
            return Proposal(prospect=prospect, placement=placement)
        return None

    def _legal(self, candidate: Candidate) -> bool:
        layout = candidate.layout
        return layout.devices == self._slice.num_devices and self._workload.verdict(layout) is None

    def _look(self, candidate: Candidate) -> _Screened | None:
        """Returns what is known of a candidate; None if it was rejected, or ranked under every placement."""
        known = self._ledger.trials.get(candidate.digest)
        if known is not None and PROPOSED not in known.numbers:
            return None
        if candidate.digest not in self._screened:
            if not self._screen.classes(candidate):
                self._ledger.refuse(self._screen.look([candidate]))
            classes = self._screen.classes(candidate)
            if not classes:
                return None
            screened = _Screened.of(classes, self._slice, self._calibration, self._degraded)
            digests = {candidate.digest, *(prospect.candidate.digest for prospect in classes)}
            screened.tried |= {screened.key(placement) for d in digests for placement in self._ledger.placements(d)}
            self._screened[candidate.digest] = screened
        return self._screened[candidate.digest]

    def _prospect(self, candidate: Candidate, screened: _Screened, placement: Placement) -> Prospect:
        """Returns what to compile for a placement: where routing is limited, the program of its class."""
        if not is_limited(self._slice):
            return screened.classes[0][1]
        direct = screened.direct(placement)
        for answers, prospect in screened.classes:
            if (answers == direct).all():
                return prospect
        fresh = replace(screened.classes[0][1], candidate=replace(candidate, placement=placement))
        screened.classes.append((direct, fresh))
        return fresh
