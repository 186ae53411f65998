"""Nightly runs of a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from storage.documents import strict, utc
from tuner.nightly.nights import NightState, NightStore, StoredNight


class MemoryNightStore(NightStore):
    """Nights in a dictionary. Safe for the threads of one process."""

    _lock: threading.RLock
    _nights: dict[int, StoredNight]

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
        """Stores a night, a new one if `night_id` is None, and returns its id."""
        with self._lock:
            if night_id is None:
                night_id = len(self._nights) + 1
            else:
                self.night(night_id)
            started, finished = utc(started_at), utc(finished_at)
            assert started is not None
            self._nights[night_id] = StoredNight(
                id=night_id,
                state=state,
                must_look=must_look,
                started_at=started,
                finished_at=finished,
                document=strict(document),
            )
            return night_id

    def nights(self, *, limit: int = 30) -> Sequence[StoredNight]:
        """Returns the last nights, newest first."""
        with self._lock:
            return [_copy(night) for _, night in sorted(self._nights.items(), reverse=True)][:limit]

    def night(self, night_id: int) -> StoredNight:
        """Returns one night."""
        with self._lock:
            if night_id not in self._nights:
                raise KeyError(f"no night {night_id}")
            return _copy(self._nights[night_id])


def _copy(night: StoredNight) -> StoredNight:
    return replace(night, document=strict(night.document))
