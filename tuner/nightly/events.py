"""What a night tells while it runs, beside what its searches tell. A listener prints or ignores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.nightly.report import EntryReport
from tuner.search.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """It is known where every entry stands: how many are due, and how many of these have a plan to re-check first."""

    entries: int
    due: int
    to_recheck: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An entry's re-check or search begins, and why; `number` of `total` of its kind."""

    name: str
    why: str
    recheck: bool
    number: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An entry's re-check or search ended; `error` if it raised one."""

    report: EntryReport
    recheck: bool
    error: Exception | None = None


NightEvent = Surveyed | Begun | Ended
NightListener = Callable[[NightEvent | Event], None]


def silent(event: NightEvent | Event) -> None:
    """A listener that ignores everything."""
