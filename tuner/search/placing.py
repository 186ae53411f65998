"""The place stage: from a compiled program to the end of its trial, under its best placement or a proposed one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default, row_major
from tuner.placements.placement import Placement
from tuner.placements.ranking import ordered_axes, rank_with
from tuner.ports import Compiled
from tuner.rejections import Rejection
from tuner.search.physical import describe
from tuner.search.routes import missing_link
from tuner.search.trials import PROPOSED, crowded_out, placed, uncompiled
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries
from tuner.stores import Trial
from tuner.timeline.ranker import Ranker


class PlaceStage:
    """Ends trials that were compiled.

    Args:
        slice_: where programs are placed.
        calibration: constants of its generation.
        degraded: links that run slower than the others.
        jax: version whose default order is compared with.
        reserve_hbm_bytes: memory that programs must leave free.
    """

    def __init__(
        self,
        slice_: Slice,
        calibration: Calibration,
        degraded: Sequence[Degraded] = (),
        *,
        jax: tuple[int, int] = (0, 12),
        reserve_hbm_bytes: int = 0,
    ) -> None:
        self._slice = slice_
        self._calibration = calibration
        self._degraded = tuple(degraded)
        self._jax = jax
        self._reserve = reserve_hbm_bytes

    def end(self, trial: Trial, outcome: Compiled | Rejection, proposed: Placement | None = None) -> tuple[Trial, int]:
        """Returns the end of a trial and how many placements were looked at.

        Args:
            trial: as it went to the compiler.
            outcome: what the compiler said.
            proposed: the only placement to look at; None to rank them all.
        """
        if isinstance(outcome, Rejection):
            return uncompiled(trial, outcome), 0
        crowded = crowded_out(outcome, self._slice, self._reserve)
        if crowded is not None:
            return uncompiled(trial, crowded), 0
        ranker = Ranker(outcome.program, self._slice, trial.candidate.layout, self._calibration, self._degraded)
        if proposed is not None:
            return self._proposed(trial, outcome, ranker, proposed), 1
        ranked = rank_with(ranker, jax=self._jax, like=trial.candidate.placement)
        best = ranked.best[0]
        if not math.isfinite(best.step_s):
            return uncompiled(trial, ranker.verdict(best.placement) or missing_link(self._slice)), ranked.scored
        steps = {
            "default_step_s": ranked.default.step_s,
            "row_major_step_s": ranked.row_major.step_s,
            "worst_step_s": ranked.worst.step_s,
        }
        ended = placed(
            trial,
            outcome,
            best.placement,
            ranker.predict(best.placement),
            numbers=_finite(steps) | {"placements": float(ranked.count)},
            # A placement that exchanges of devices made has no parameters; the structure next to it has.
            physical=next(filter(None, (self._parameters(ranker, other.placement) for other in ranked.best)), {}),
        )
        return ended, ranked.scored

    def _proposed(self, trial: Trial, compiled: Compiled, ranker: Ranker, placement: Placement) -> Trial:
        layout = trial.candidate.layout
        compared = [placement, jax_default(self._slice, layout, jax=self._jax), row_major(self._slice)]
        devices = np.array([each.devices for each in compared])
        like = trial.candidate.placement
        same = np.ones(len(devices), bool)
        if like is not None:
            same = (ranker.direct(devices) == ranker.direct(np.array([like.devices]))).all(axis=1)
        step_s, default_s, row_major_s = np.where(same, ranker.step_s(devices), np.inf).tolist()
        if not math.isfinite(step_s):
            return uncompiled(trial, ranker.verdict(placement) or missing_link(self._slice))
        steps = {"default_step_s": default_s, "row_major_step_s": row_major_s}
        return placed(
            trial,
            compiled,
            placement,
            ranker.predict(placement),
            numbers=_finite(steps) | {PROPOSED: 1.0},
            physical=self._parameters(ranker, placement),
        )

    def _parameters(self, ranker: Ranker, placement: Placement) -> Mapping[str, str]:
        """Returns the physical parameters of a placement or of one that it is an image of; none if there are none."""
        ordered = ordered_axes(ranker)
        # Links that differ tell images apart, and then the best may be an image of the structure that names it.
        devices = np.array(placement.devices)
        for move in symmetries(self._slice, translations=False) if self._degraded else [np.arange(len(devices))]:
            answers = describe(self._slice, ranker.layout, ordered, move[devices].tolist())
            if answers is not None:
                return {question.name: value for question, value in answers.items()}
        return {}


def _finite(steps: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in steps.items() if math.isfinite(seconds)}
