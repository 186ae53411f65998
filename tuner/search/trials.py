"""Trials as the stages leave them: built from an outcome, never changed in place."""

from __future__ import annotations

import math
from dataclasses import replace

from tuner.layouts.layout import Candidate
from tuner.placements.ranking import RankedPlacements
from tuner.ports import Compiled
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.prospects import Prospect
from tuner.slices.slice import Slice
from tuner.stores import Trial, TrialState
from tuner.timeline.prediction import Prediction

UNNUMBERED = -1
"""Number of a trial that the ledger has not entered yet."""


def running(number: int, prospect: Prospect, baseline: str) -> Trial:
    """Returns the trial of a prospect that goes to the compiler."""
    return Trial(
        number=number,
        candidate=prospect.candidate,
        state=TrialState.RUNNING,
        stage=Stage.COMPILE,
        baseline=baseline,
        bound_s=prospect.bound.step_s,
        estimate_s=prospect.estimate_s,
        lowered_digest=prospect.screened.digest,
    )


def rejected(candidate: Candidate, rejection: Rejection, *, bound_s: float | None = None) -> Trial:
    """Returns the trial of a candidate that the screen rejected."""
    return Trial(
        number=UNNUMBERED,
        candidate=candidate,
        state=TrialState.REJECTED,
        stage=rejection.stage,
        rejection=rejection,
        bound_s=bound_s,
        numbers=dict(rejection.numbers),
    )


def bounded(prospect: Prospect, best_s: float) -> Trial:
    """Returns the trial of a prospect that cannot beat the best prediction."""
    bound_s = prospect.bound.step_s
    rejection = Rejection(
        stage=Stage.SCREEN,
        reason=RejectReason.BOUND,
        detail=f"no step can be faster than {bound_s:.4f} s, the best prediction is {best_s:.4f} s",
        numbers={"bound_s": bound_s, "best_s": best_s},
    )
    return replace(rejected(prospect.candidate, rejection, bound_s=bound_s), estimate_s=prospect.estimate_s)


def uncompiled(trial: Trial, rejection: Rejection) -> Trial:
    """Returns the end of a running trial that the compiler rejected."""
    return replace(
        trial,
        state=TrialState.REJECTED,
        stage=rejection.stage,
        rejection=rejection,
        numbers=dict(rejection.numbers),
    )


def placed(trial: Trial, compiled: Compiled, ranked: RankedPlacements, best: Prediction) -> Trial:
    """Returns the end of a running trial that was compiled and placed; `best` is the prediction of its best placement.

    Steps under placements that do not compile, or not to this program, are not among the numbers.
    A bound above the prediction is kept as ``bound_violation_s``: one such trial, and the study proves nothing.
    """
    memory = compiled.program.memory
    steps = {
        "default_step_s": ranked.default.step_s,
        "row_major_step_s": ranked.row_major.step_s,
        "worst_step_s": ranked.worst.step_s,
    }
    numbers = {name: seconds for name, seconds in steps.items() if math.isfinite(seconds)}
    numbers |= {
        "compute_s": best.compute_s,
        "attention_s": best.attention_s,
        "exposed_s": best.exposed_communication_s,
        "compile_s": compiled.compile_s,
        "received_bytes": best.received_bytes,
        "placements": float(ranked.count),
    }
    if memory is not None:
        numbers |= {"memory_bytes": float(memory.total_bytes), "argument_bytes": float(memory.argument_bytes)}
    if trial.bound_s is not None and trial.bound_s > best.step_s:
        numbers["bound_violation_s"] = trial.bound_s - best.step_s
    return replace(
        trial,
        stage=Stage.PLACE,
        state=TrialState.COMPLETE,
        predicted_s=best.step_s,
        numbers=numbers,
        placement=ranked.best[0].placement,
        details=best.to_json(),
        lowered_digest=compiled.lowered_digest,
    )


def crowded_out(compiled: Compiled, slice_: Slice, reserve_bytes: int) -> Rejection | None:
    """Returns why a program that compiled does not fit beside what else lives on the chip, or None."""
    memory = compiled.program.memory
    available = slice_.generation.hbm_bytes - reserve_bytes
    if memory is None or memory.total_bytes <= available:
        return None
    return Rejection(
        stage=Stage.COMPILE,
        reason=RejectReason.HBM,
        detail=f"needs {memory.total_bytes} bytes of HBM, {available} are free beside the reserve",
        numbers={"needed_bytes": memory.total_bytes, "available_bytes": available},
    )
