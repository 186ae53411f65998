"""When a new plan replaces the active one of its key."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.plans.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether to promote, and why, in one sentence."""

    promote: bool
    reason: str


def judge(new: Plan, active: Plan | None, *, margin: float) -> Verdict:
    """Compares a new plan with the active one of the same workload, slice, toolchain and constraints.

    A plan replaces another only under the same kind of evidence and only if it is better by `margin` (a share of the
    active plan's step time). The same decision under a changed model, with a proof or with more baselines beside it,
    replaces its figures without that.
    """
    if active is None:
        return Verdict(promote=True, reason="there was no plan")
    if new.evidence is not active.evidence:
        return Verdict(
            promote=False, reason=f"the active plan is {active.evidence}, the new one {new.evidence}: not comparable"
        )
    same = new.candidate == active.candidate and new.placement.devices == active.placement.devices
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


def _knows_more(new: Plan, active: Plan) -> bool:
    """Returns whether the new plan has what the active one lacks: the proof, or a baseline to compare with."""
    compared = {baseline.name for baseline in active.baselines if baseline.step_s is not None}
    added = any(baseline.step_s is not None and baseline.name not in compared for baseline in new.baselines)
    return added or (new.proved and not active.proved)
