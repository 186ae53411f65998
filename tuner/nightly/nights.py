"""Nights as a store keeps them: what the dashboard shows, and how the next night knows what was finished."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class NightState(StrEnum):
    """State of a night. Values are stored: only add, never remove."""

    RUNNING = "running"  # or killed: the next night finds out
    COMPLETE = "complete"
    OUT_OF_TIME = "out-of-time"
    INTERRUPTED = "interrupted"
    DISPLACED = "displaced"  # it lost its lock, and another night may have begun
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNight:
    """A night as a store holds it.

    Attributes:
        id: ascending.
        state: where it stands.
        must_look: whether a person must look at it.
        started_at, finished_at: aware, in UTC; `finished_at` is None while it runs, and if it died.
        document: the report's JSON document (`tuner.nightly.report.NightReport`).
    """

    id: int
    state: NightState
    must_look: bool
    started_at: datetime
    finished_at: datetime | None
    document: Mapping[str, Any]


class NightStore(abc.ABC):
    """Nights and their reports."""

    @abc.abstractmethod
    def save_night(
        self,
        night_id: int | None,
        *,
        state: NightState,
        must_look: bool,
        started_at: datetime,
        finished_at: datetime | None,
        document: Mapping[str, Any],
    ) -> int:
        """Stores a night, a new one if `night_id` is None, and returns its id. Raises KeyError if there is none."""

    @abc.abstractmethod
    def nights(self, *, limit: int = 30) -> Sequence[StoredNight]:
        """Returns the last nights, newest first."""

    @abc.abstractmethod
    def night(self, night_id: int) -> StoredNight:
        """Returns one night. Raises KeyError if there is no such night."""
