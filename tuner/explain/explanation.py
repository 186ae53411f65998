"""Why a plan won: the runner-up and what it loses where, what became of each family, and how far the limits are.

Values for a terminal, a page and JSON alike; nothing here prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.explain.families import Family, families
from tuner.explain.limits import Limits, limits
from tuner.explain.parts import Part, beside
from tuner.plans.plan import Evidence, Plan, StoredPlan
from tuner.plans.programs import program_of_trial
from tuner.stores import Store, Study, Trial
from tuner.timeline.prediction import Prediction

RIVALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another candidate of the same study.

    Attributes:
        trial: its number.
        layout: its layout, and `flags` its compiler options.
        baseline: ``A`` or ``B`` if it is one.
        placement: of its best placement, for people.
        step_s: its step, of the plan's kind of evidence.
        loss_s: how much longer than the plan's.
        parts: both timelines beside each other, the largest loss first; predictions whatever the evidence.
    """

    trial: int
    layout: str
    flags: tuple[tuple[str, str], ...]
    baseline: str
    placement: str
    step_s: float
    loss_s: float
    parts: tuple[Part, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "trial": self.trial,
            "layout": self.layout,
            "flags": dict(self.flags),
            "baseline": self.baseline,
            "placement": self.placement,
            "step_s": self.step_s,
            "loss_s": self.loss_s,
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a plan won.

    Attributes:
        plan: the stored plan.
        limits: how far it is from each; None if it holds no timeline.
        rivals: the best other candidates, the runner-up first.
        families: what became of layouts by the axes that they split, refused ones left out.
        refused: how many layouts enumeration refused, by reason.
        searched: whether the study that it came from is in the database.
        proved: whether the study is proved.
    """

    plan: StoredPlan
    limits: Limits | None
    rivals: tuple[Rival, ...]
    families: tuple[Family, ...]
    refused: Mapping[str, int]
    searched: bool
    proved: bool

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document; the plan is in it by its id."""
        plan = self.plan.plan
        return {
            "plan": self.plan.id,
            "workload": plan.workload.name,
            "slice": plan.slice.name,
            "layout": str(plan.candidate.layout),
            "step_s": plan.step_s,
            "evidence": plan.evidence.value,
            "searched": self.searched,
            "proved": self.proved,
            "limits": None if self.limits is None else self.limits.to_json(),
            "rivals": [rival.to_json() for rival in self.rivals],
            "families": [family.to_json() for family in self.families],
            "refused": dict(self.refused),
        }


def explain(store: Store, stored: StoredPlan, *, rivals: int = RIVALS) -> Explanation:
    """Returns why a plan won, from what its database holds of the study that it came from."""
    plan = stored.plan
    study = next((study for study in store.studies() if study.key.name == plan.study), None)
    trials: Sequence[Trial] = () if study is None else store.trials(study.id)
    return Explanation(
        plan=stored,
        limits=_limits(store, plan, trials),
        rivals=_rivals(plan, trials)[:rivals],
        families=families(trials),
        refused={} if study is None else dict(store.refusals(study.id)),
        searched=study is not None,
        proved=_proved(study, plan),
    )


def predicted(details: Mapping[str, Any]) -> Prediction | None:
    """Returns the prediction in the details of a plan or of a trial; None if there is none."""
    return Prediction.from_json(details) if "step_s" in details and "matmul_s" in details else None


def _proved(study: Study | None, plan: Plan) -> bool:
    return plan.proved or (study is not None and study.proved)


def _limits(store: Store, plan: Plan, trials: Sequence[Trial]) -> Limits | None:
    prediction = predicted(plan.details)
    if prediction is None:
        return None
    trial = next((trial for trial in trials if trial.number == plan.trial), None)
    compiled = None if trial is None else program_of_trial(store, trial, plan.slice, plan.toolchain)
    return limits(prediction, None if compiled is None else compiled.program, plan.slice)


def _rivals(plan: Plan, trials: Sequence[Trial]) -> tuple[Rival, ...]:
    """Returns the other candidates that have a step of the plan's kind of evidence, fastest first.

    A candidate that was tried in several placements is there in its best.
    """
    ours = predicted(plan.details)
    found = []
    for trial in trials:
        step_s = trial.measured_s if plan.evidence is Evidence.MEASURED else trial.predicted_s
        if step_s is None or trial.number == plan.trial or trial.candidate == plan.candidate:
            continue
        found.append(
            Rival(
                trial=trial.number,
                layout=str(trial.candidate.layout),
                flags=trial.candidate.compiler_options,
                baseline=trial.baseline,
                placement="" if trial.placement is None else trial.placement.description,
                step_s=step_s,
                loss_s=step_s - plan.step_s,
                parts=beside(ours, predicted(trial.details)),
            )
        )
    found.sort(key=lambda rival: (rival.step_s, rival.trial))
    return tuple({(rival.layout, rival.flags): rival for rival in reversed(found)}.values())[::-1]
