"""Trials as the stages leave them: built from an outcome, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.ports import Compiled
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.prospects import Prospect
from tuner.slices.slice import Slice
from tuner.stores import Trial, TrialState
from tuner.timeline.prediction import Prediction

UNNUMBERED = -1
"""Number of a trial that the ledger has not entered yet."""

PHYSICAL = "physical"
"""Under which a trial's details hold the parameters of its placement, by name."""

PROPOSED = "proposed_placement"
"""Among the numbers of a trial that was predicted under the placement that a sampler proposed, and under no other."""

DUPLICATE_OF = "duplicate_of"
"""Under which a trial's numbers hold the number of the trial that it repeats."""


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


def placed(
    trial: Trial,
    compiled: Compiled,
    placement: Placement,
    prediction: Prediction,
    *,
    numbers: Mapping[str, float],
    physical: Mapping[str, str],
) -> Trial:
    """Returns the end of a running trial that was compiled and placed.

    A bound above the prediction is kept as ``bound_violation_s``: one such trial, and the study proves nothing.

    Args:
        trial: as it ran.
        compiled: its program.
        placement: where the program is; `prediction` is its step there.
        numbers: of other placements. Those that do not compile, or not to this program, are not among them.
        physical: the placement's parameters by name.
    """
    memory = compiled.program.memory
    found = dict(numbers) | {
        "compute_s": prediction.compute_s,
        "attention_s": prediction.attention_s,
        "exposed_s": prediction.exposed_communication_s,
        "compile_s": compiled.compile_s,
        "received_bytes": prediction.received_bytes,
    }
    if memory is not None:
        found |= {"memory_bytes": float(memory.total_bytes), "argument_bytes": float(memory.argument_bytes)}
    if trial.bound_s is not None and trial.bound_s > prediction.step_s:
        found["bound_violation_s"] = trial.bound_s - prediction.step_s
    return replace(
        trial,
        stage=Stage.PLACE,
        state=TrialState.COMPLETE,
        predicted_s=prediction.step_s,
        numbers=found,
        placement=placement,
        details=prediction.to_json() | {PHYSICAL: dict(physical)},
        lowered_digest=compiled.lowered_digest,
    )


def repeated(number: int, candidate: Candidate, first: Trial) -> Trial:
    """Returns the trial of a candidate that an earlier one has tried."""
    rejection = Rejection(
        stage=Stage.SCREEN,
        reason=RejectReason.DUPLICATE,
        detail=f"the same as trial {first.number}",
        numbers={DUPLICATE_OF: float(first.number)},
    )
    return replace(rejected(candidate, rejection), number=number)


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
