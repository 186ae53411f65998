"""The outcome of a fit: constants with their uncertainty, and what they did to rows that the fit did not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tuner.calibration.calibration import Calibration
from tuner.plans.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One fitted constant.

    Attributes:
        name: a field of `Calibration`, or ``launches.all-reduce``.
        before, after: its value in the record that the fit started from, and in the fitted one.
        uncertainty: standard error as a share of `after`, as far as the rows tell.
    """

    name: str
    before: float
    after: float
    uncertainty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Error over rows of one kind, each predicted by a fit that did not see it.

    Attributes:
        what: as `Observation.what`.
        rows: how many.
        before: mean of |predicted / observed - 1| with the record that the fit started from.
        after: the same with the fit.
    """

    what: str
    rows: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Constants of one generation and toolchain, fitted to observations.

    Attributes:
        generation: name of the generation.
        toolchain: that compiled what was observed.
        start: the record that the fit started from.
        calibration: the fitted record.
        constants: what was fitted; the others are as in `start`.
        held_back: errors by kind.
        rows: observations that the fit saw in all.
        used: whether searches take it; `reason` says why, or why not.
        fitted_at: when, aware.
    """

    generation: str
    toolchain: Toolchain
    start: Calibration
    calibration: Calibration
    constants: tuple[Constant, ...]
    held_back: tuple[HeldBack, ...]
    rows: int
    used: bool
    reason: str
    fitted_at: datetime

    @property
    def error_before(self) -> float:
        """Mean over the kinds of rows that were held back, as a share."""
        return sum(each.before for each in self.held_back) / max(1, len(self.held_back))

    @property
    def error_after(self) -> float:
        """The same with the fitted constants."""
        return sum(each.after for each in self.held_back) / max(1, len(self.held_back))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "generation": self.generation,
            "toolchain": self.toolchain.to_json(),
            "start": self.start.to_json(),
            "calibration": self.calibration.to_json(),
            "constants": [asdict(constant) for constant in self.constants],
            "held_back": [asdict(each) for each in self.held_back],
            "rows": self.rows,
            "used": self.used,
            "reason": self.reason,
            "fitted_at": self.fitted_at.isoformat(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Fit:
        """Reads what `to_json` wrote."""
        return cls(
            generation=document["generation"],
            toolchain=Toolchain.from_json(document["toolchain"]),
            start=Calibration.from_json(document["start"]),
            calibration=Calibration.from_json(document["calibration"]),
            constants=tuple(Constant(**constant) for constant in document["constants"]),
            held_back=tuple(HeldBack(**each) for each in document["held_back"]),
            rows=document["rows"],
            used=document["used"],
            reason=document["reason"],
            fitted_at=datetime.fromisoformat(document["fitted_at"]),
        )
