"""When a new plan replaces the active one of its key."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.plans.plan import Evidence, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether to promote, and why, in one sentence."""

    promote: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """How the active plan did where the new one was measured, in the same run.

    Attributes:
        measured_s: its step; None if it does not run there.
        refused: why it does not run, or that it was slower and stopped early.
    """

    measured_s: float | None
    refused: str = ""


def judge(new: Plan, active: Plan | None, *, margin: float, incumbent: Incumbent | None = None) -> Verdict:
    """Compares a new plan with the active one of the same workload, slice, toolchain and constraints.

    A plan replaces another only under the same kind of evidence and only if it is better by `margin` (a share of the
    active plan's step time). The same decision under a changed model, with a proof or with more baselines beside it,
    replaces its figures without that.

    A measured plan is compared with the active one as that did in the same run (`incumbent`), whatever the active one
    rested on before: times of two days are times of two machines. A measured plan that was not measured beside the
    predicted one that it would replace does not replace it, and a predicted plan never replaces a measured one.
    """
    if active is None:
        return Verdict(promote=True, reason="there was no plan")
    same = new.candidate == active.candidate and new.placement.devices == active.placement.devices
    measured = new.evidence is Evidence.MEASURED
    if measured and incumbent is not None:
        return _beside(new, active, incumbent, same=same, margin=margin)
    if measured and same:
        return Verdict(promote=True, reason="the same layout and placement, measured")
    if new.evidence is not active.evidence:
        return Verdict(
            promote=False, reason=f"the active plan is {active.evidence}, the new one {new.evidence}: not comparable"
        )
    if same and new.step_s == active.step_s and not _knows_more(new, active):
        return Verdict(promote=False, reason="the active plan is the same")
    if same:
        return Verdict(promote=True, reason="the same layout and placement with newer figures")
    gain = 1 - new.step_s / active.step_s
    if gain >= margin:
        return Verdict(promote=True, reason=f"{gain:.1%} faster than the active plan, both {new.evidence}")
    return Verdict(
        promote=False, reason=f"{gain:+.1%} against the active plan does not reach the margin of {margin:.1%}"
    )


def _beside(new: Plan, active: Plan, incumbent: Incumbent, *, same: bool, margin: float) -> Verdict:
    if same:
        return Verdict(promote=True, reason="the same layout and placement, measured again")
    if incumbent.measured_s is None:
        return Verdict(promote=True, reason=f"the active plan lost where both were run: {incumbent.refused}")
    gain = 1 - new.step_s / incumbent.measured_s
    if gain >= margin:
        return Verdict(promote=True, reason=f"{gain:.1%} faster than the active plan, measured in the same run")
    return Verdict(
        promote=False,
        reason=f"{gain:+.1%} against the active plan, measured in the same run, does not reach the margin of "
        f"{margin:.1%}",
    )


def _knows_more(new: Plan, active: Plan) -> bool:
    """Returns whether the new plan has what the active one lacks: the proof, or a baseline to compare with."""
    compared = {baseline.name for baseline in active.baselines if baseline.step_s is not None}
    added = any(baseline.step_s is not None and baseline.name not in compared for baseline in new.baselines)
    return added or (new.proved and not active.proved)
