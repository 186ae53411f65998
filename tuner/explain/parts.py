"""Where a step's time goes, in parts that two steps can be set beside each other by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.timeline.prediction import Prediction

_EXPOSED = "exposed, over "


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of two steps, in seconds; None where the step has no timeline."""

    name: str
    ours_s: float | None
    theirs_s: float | None

    @property
    def loss_s(self) -> float | None:
        """How much longer it takes in the other step; below 0 if it is shorter."""
        return None if self.ours_s is None or self.theirs_s is None else self.theirs_s - self.ours_s

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"name": self.name, "ours_s": self.ours_s, "theirs_s": self.theirs_s, "loss_s": self.loss_s}


def parts(prediction: Prediction) -> dict[str, float]:
    """Returns the seconds of every part: operations by kind, and what is waited for over each set of mesh axes."""
    out = {
        "matrix products": prediction.matmul_s,
        "memory-bound operations": prediction.memory_s,
        "layout changes": prediction.copy_s,
        "attention": prediction.attention_s,
        "other kernels": prediction.kernel_s,
    }
    out |= {_EXPOSED + axes: seconds for axes, seconds in prediction.exposed_by_axes.items()}
    return out


def beside(ours: Prediction | None, theirs: Prediction | None) -> tuple[Part, ...]:
    """Returns the parts that either step has, the largest loss of the other first."""
    ours_s, theirs_s = (None if prediction is None else parts(prediction) for prediction in (ours, theirs))
    names = dict.fromkeys((*(ours_s or {}), *(theirs_s or {})))
    found = [Part(name=name, ours_s=_of(ours_s, name), theirs_s=_of(theirs_s, name)) for name in names]
    kept = [part for part in found if part.ours_s or part.theirs_s]
    return tuple(sorted(kept, key=lambda part: -(part.loss_s or 0.0)))


def _of(seconds: Mapping[str, float] | None, name: str) -> float | None:
    return None if seconds is None else seconds.get(name, 0.0)
