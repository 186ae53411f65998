"""Observations and fits of a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from storage.documents import clean, utc
from tuner.calibration.fitted import Fit
from tuner.calibration.observation import Observation
from tuner.calibration.records import CalibrationStore
from tuner.plans.toolchain import Toolchain


class MemoryCalibrationStore(CalibrationStore):
    """Rows in lists. Safe for the threads of one process."""

    _lock: threading.RLock
    _observations: list[Observation]
    _fits: list[Fit]

    def save_observations(self, observations: Sequence[Observation]) -> None:
        """Adds rows."""
        with self._lock:
            self._observations += [_kept(observation) for observation in observations]

    def observations(self, generation: str, toolchain: Toolchain | None = None) -> Sequence[Observation]:
        """Returns the rows of a generation, oldest first."""
        with self._lock:
            return [
                each
                for each in self._observations
                if each.slice.generation_name == generation and toolchain in (None, each.toolchain)
            ]

    def save_fit(self, fit: Fit) -> None:
        """Adds a fit."""
        with self._lock:
            self._fits.append(Fit.from_json(fit.to_json()))

    def fits(self, generation: str | None = None, *, limit: int | None = None) -> Sequence[Fit]:
        """Returns fits, newest first."""
        with self._lock:
            return [fit for fit in reversed(self._fits) if generation in (None, fit.generation)][:limit]

    def fit_in_use(self, generation: str, toolchain: Toolchain) -> Fit | None:
        """Returns the newest fit that searches take, or None."""
        found = (fit for fit in self.fits(generation) if fit.used and fit.toolchain.digest == toolchain.digest)
        return next(found, None)


def _kept(observation: Observation) -> Observation:
    observed_at = utc(observation.observed_at)
    assert observed_at is not None
    return replace(
        observation,
        observed_at=observed_at,
        name=clean(observation.name),
        device_kind=clean(observation.device_kind),
        host=clean(observation.host),
    )
