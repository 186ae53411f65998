"""Measurements of a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from storage.documents import clean, strict, utc
from tuner.measurements import Measurement, MeasurementStore, Source


class MemoryMeasurementStore(MeasurementStore):
    """Rows in a list. Safe for the threads of one process."""

    _clock: Callable[[], datetime]
    _lock: threading.RLock
    _measurements: list[Measurement]

    def save_measurement(self, measurement: Measurement) -> Measurement:
        """Stores a measurement and returns it with its id and time."""
        with self._lock:
            stored = replace(
                measurement,
                id=len(self._measurements) + 1,
                observed_at=utc(measurement.observed_at or self._clock()),
                details=strict(measurement.details),
                study=clean(measurement.study),
                device_kind=clean(measurement.device_kind),
                host=clean(measurement.host),
            )
            self._measurements.append(stored)
            return replace(stored, details=strict(stored.details))

    def measurements(
        self,
        *,
        source: Source | None = None,
        plan_id: int | None = None,
        study: str | None = None,
        slice_name: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Measurement]:
        """Returns the measurements that have all that is asked for, newest first."""
        with self._lock:
            found = [
                replace(each, details=strict(each.details))
                for each in reversed(self._measurements)
                if source in (None, each.source)
                and plan_id in (None, each.plan_id)
                and study in (None, each.study)
                and slice_name in (None, each.slice.name)
            ]
        return found[:limit]
