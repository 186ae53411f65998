"""The first stages of the funnel: the whole space written out and looked at, before anything is compiled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import enumerate_layouts
from tuner.ports import Workload
from tuner.rejections import Rejection
from tuner.screening.bounds import lower_bound
from tuner.screening.estimate import estimate
from tuner.screening.memory import memory_rejection
from tuner.search.cache import CachedScreener
from tuner.search.events import Enumerated, Listener, ScreenEnded, Screening
from tuner.search.prospects import Prospect
from tuner.search.routes import Routes
from tuner.search.trials import rejected
from tuner.slices.slice import Slice
from tuner.stores import Trial


class ScreenStage:
    """Turns candidates into prospects, or into the trials of those that it rejects.

    Attributes:
        prospects: every candidate that passed, by digest; one for each class of placements where these are different
            programs.
        routes: makes classes of placements.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        slice_: Slice,
        calibration: Calibration,
        screener: CachedScreener,
        reserve_hbm_bytes: int,
        listener: Listener,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workload = workload
        self._slice = slice_
        self._calibration = calibration
        self._screener = screener
        self._reserve = reserve_hbm_bytes
        self._listener = listener
        self._clock = clock
        self._classes: dict[str, tuple[Prospect, ...]] = {}
        self.routes = routes
        self.prospects: dict[str, Prospect] = {}

    def enumerate(self) -> tuple[list[Candidate], Counter[str]]:
        """Returns a candidate for every legal layout and every legal baseline, and how many were refused by reason."""
        layouts: list[Layout] = []
        refused: Counter[str] = Counter()
        for outcome in enumerate_layouts(self._workload.space, self._slice.num_devices, self._workload.verdict):
            if isinstance(outcome, Rejection):
                refused[outcome.reason.value] += 1
            else:
                layouts.append(outcome)
        self._listener(Enumerated(legal=len(layouts), refused=refused))
        legal_baselines = [
            layout
            for layout in self._workload.baselines(self._slice).values()
            if self._workload.verdict(layout) is None
        ]
        candidates = [self._initial(layout) for layout in layouts]
        candidates += [self.routes.in_default_order(Candidate(layout=layout)) for layout in legal_baselines]
        return list({candidate.digest: candidate for candidate in candidates}.values()), refused

    def look(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Screens candidates into `prospects`; returns the trials of those that are rejected."""
        refusals: list[Trial] = []
        known = 0
        started = self._clock()
        for done, (candidate, outcome, cached) in enumerate(self._screener.screen(candidates), start=1):
            known += cached
            self._listener(Screening(done=done, total=len(candidates), cached=known))
            if isinstance(outcome, Rejection):
                refusals.append(rejected(candidate, outcome))
                continue
            bound = lower_bound(outcome, self._slice, self._calibration)
            too_big = memory_rejection(outcome, self._slice, reserve_bytes=self._reserve)
            if too_big is not None:
                refusals.append(rejected(candidate, too_big, bound_s=bound.step_s))
                continue
            classes = self.routes.classes(
                Prospect(
                    candidate=candidate,
                    screened=outcome,
                    bound=bound,
                    estimate_s=estimate(outcome, self._slice, self._calibration),
                )
            )
            if isinstance(classes, Rejection):
                refusals.append(rejected(candidate, classes, bound_s=bound.step_s))
                continue
            self._classes[candidate.digest] = classes
            self.prospects |= {prospect.candidate.digest: prospect for prospect in classes}
        reasons = Counter(trial.rejection.reason.value for trial in refusals if trial.rejection is not None)
        self._listener(
            ScreenEnded(open=len(candidates) - len(refusals), rejected=reasons, elapsed_s=self._clock() - started)
        )
        return refusals

    def classes(self, candidate: Candidate) -> tuple[Prospect, ...]:
        """Returns the prospects of a candidate that passed, one for each class of placements; none if it did not."""
        return self._classes.get(candidate.digest, ())

    def _initial(self, layout: Layout) -> Candidate:
        """Returns the candidate that a layout enters the funnel as: with the kernel blocks that suit it best."""
        variants = self._workload.tuned(layout, self._slice)
        return Candidate(
            layout=variants[0] if variants else layout, compiler_options=self._workload.space.initial_flags()
        )
