"""What a night may still spend: wall time and, apart, time on devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LEAST_S = 1.0
"""With less wall time than this nothing new is begun."""


@dataclass(slots=True, kw_only=True)
class Budgets:
    """Both budgets of a night; None is no limit.

    Attributes:
        wall_s, device_s: limits of the whole night.
        clock: monotonic, in seconds.
        started: its time when the night began.
        device_spent_s: time on devices so far.
    """

    wall_s: float | None
    device_s: float | None
    clock: Callable[[], float]
    started: float
    device_spent_s: float = 0.0

    @property
    def wall_spent_s(self) -> float:
        """Seconds since the night began."""
        return self.clock() - self.started

    @property
    def wall_left_s(self) -> float | None:
        """Wall time that is left, never below 0; None without a limit."""
        return None if self.wall_s is None else max(0.0, self.wall_s - self.wall_spent_s)

    @property
    def device_left_s(self) -> float | None:
        """Time on devices that is left, never below 0; None without a limit."""
        return None if self.device_s is None else max(0.0, self.device_s - self.device_spent_s)

    @property
    def spent(self) -> bool:
        """True if nothing new may begin."""
        left = self.wall_left_s
        return left is not None and left < LEAST_S

    def wall_for(self, entry_s: float) -> float:
        """Returns the wall time for an entry that asks for so much."""
        left = self.wall_left_s
        return entry_s if left is None else min(entry_s, left)

    def device_for(self, entry_s: float | None) -> float | None:
        """Returns the time on devices for an entry that asks for so much; None if neither sets a limit."""
        limits = [limit for limit in (entry_s, self.device_left_s) if limit is not None]
        return min(limits, default=None)
