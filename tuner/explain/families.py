"""What became of each family of layouts: those that split the same mesh axes, whatever the sizes and options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.layouts.layout import Layout
from tuner.rejections import RejectReason, Stage
from tuner.stores import Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One reason for which trials of a family were rejected.

    Attributes:
        stage, reason: as the rejections say.
        trials: how many.
        nearest: the layout that came nearest to passing, and `detail` what it lacked.
    """

    stage: Stage
    reason: RejectReason
    trials: int
    nearest: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Layouts that split the same mesh axes.

    Attributes:
        axes: the axes that are split; empty for one device.
        trials: candidates that were looked at.
        placed: those of them that have a prediction.
        best_s: the best prediction; None if there is none. `best` is its layout.
        grounds: why the others were rejected, the most frequent first.
    """

    axes: tuple[str, ...]
    trials: int
    placed: int
    best_s: float | None
    best: str
    grounds: tuple[Ground, ...]

    @property
    def name(self) -> str:
        """``cfg+ulysses``."""
        return "+".join(self.axes) or "one device"

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "name": self.name,
            "axes": list(self.axes),
            "trials": self.trials,
            "placed": self.placed,
            "best_s": self.best_s,
            "best": self.best,
            "rejected": [
                {
                    "stage": ground.stage.value,
                    "reason": ground.reason.value,
                    "trials": ground.trials,
                    "nearest": ground.nearest,
                    "detail": ground.detail,
                }
                for ground in self.grounds
            ],
        }


def families(trials: Iterable[Trial]) -> tuple[Family, ...]:
    """Returns every family, the one with the best prediction first, then those without any by size."""
    grouped: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        grouped.setdefault(split_axes(trial.candidate.layout), []).append(trial)
    found = [_family(axes, members) for axes, members in grouped.items()]
    return tuple(
        sorted(found, key=lambda family: (family.best_s is None, family.best_s or 0.0, -family.trials, family.axes))
    )


def split_axes(layout: Layout) -> tuple[str, ...]:
    """Returns the mesh axes of a layout that are longer than 1."""
    return tuple(name for name, size in layout.axes if size > 1)


def _family(axes: tuple[str, ...], members: Sequence[Trial]) -> Family:
    placed = [trial for trial in members if trial.state is TrialState.COMPLETE and trial.predicted_s is not None]
    best = min(placed, key=lambda trial: (trial.predicted_s or 0.0, trial.number), default=None)
    by_ground: dict[tuple[Stage, RejectReason], list[Trial]] = {}
    for trial in members:
        if trial.rejection is not None:
            by_ground.setdefault((trial.rejection.stage, trial.rejection.reason), []).append(trial)
    grounds = [_ground(stage, reason, rejected) for (stage, reason), rejected in by_ground.items()]
    return Family(
        axes=axes,
        trials=len(members),
        placed=len(placed),
        best_s=None if best is None else best.predicted_s,
        best="" if best is None else str(best.candidate.layout),
        grounds=tuple(sorted(grounds, key=lambda ground: (-ground.trials, ground.stage, ground.reason))),
    )


def _ground(stage: Stage, reason: RejectReason, rejected: Sequence[Trial]) -> Ground:
    nearest = min(rejected, key=_lack)
    assert nearest.rejection is not None
    return Ground(
        stage=stage,
        reason=reason,
        trials=len(rejected),
        nearest=str(nearest.candidate.layout),
        detail=nearest.rejection.detail,
    )


def _lack(trial: Trial) -> tuple[float, int]:
    """Orders rejected trials by what they lacked: bytes of memory, or seconds of the bound; else by their number."""
    rejection = trial.rejection
    numbers = {} if rejection is None else rejection.numbers
    lacked = numbers.get("needed_bytes", numbers.get("bound_s", 0.0))
    return lacked, trial.number
