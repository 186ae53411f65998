"""What a night asks of the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.layouts.layout import Candidate
from tuner.nightly.matrix import Entry
from tuner.search.events import Listener
from tuner.search.outcome import Outcome
from tuner.search.settings import Settings
from tuner.stores import StudyKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search left behind, the seconds for which it held devices, and what there is to say about that."""

    outcome: Outcome
    device_s: float = 0.0
    note: str = ""


class Desk(Protocol):
    """Does for a night what needs a compiler. What it raises is the failure of the entry."""

    def key(self, entry: Entry) -> StudyKey:
        """Returns the key of the study that a search of the entry is."""

    def measures(self, entry: Entry) -> bool:
        """Returns whether a search of the entry would measure: it shall, and its devices are here."""

    def recheck(self, entry: Entry, candidate: Candidate, settings: Settings, listener: Listener) -> Outcome:
        """Compiles and places one candidate, as `tuner.search.funnel.Search.recheck` does."""

    def search(self, entry: Entry, settings: Settings, device_s: float | None, listener: Listener) -> Searched:
        """Searches. `device_s` is the time that it may spend on devices, None for any."""
