"""What a search tells while it runs. A listener prints, draws or ignores; the search never prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.stores import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumerated:
    """The space was written out: `legal` layouts, and how many were refused by reason."""

    legal: int
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """`done` of `total` layouts were looked at, `cached` of them known from before."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenEnded:
    """Every layout was looked at; `open` may win, the rest were rejected by reason."""

    open: int
    rejected: Mapping[str, int]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A candidate goes to the compiler."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A candidate was compiled and placed, or rejected on the way."""

    trial: Trial
    cached: bool
    compile_s: float
    placements: int
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMeasured:
    """A candidate was timed on devices, or could not be; `role` is why it was (`tuner.search.promising.Role`)."""

    trial: Trial
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The search ended, and why."""

    reason: str
    proved: bool


Event = Enumerated | Screening | ScreenEnded | TrialStarted | TrialEnded | TrialMeasured | Stopped
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """A listener that ignores everything."""
