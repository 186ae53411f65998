"""Compiled programs by use, in a store that lives and dies with the process and keeps what it has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from tuner.leases import Lease
from tuner.stores import ContentKey
from tuner.upkeep import OLD, Pruned, UpkeepStore


class MemoryUpkeepStore(UpkeepStore):
    """Programs are objects here, which take no compressed bytes: there is nothing to drop."""

    _clock: Callable[[], datetime]
    _lock: threading.RLock
    _leases: dict[str, Lease]

    def use_program(self, key: ContentKey) -> None:
        """Has nobody to tell."""

    def prune_programs(self, *, most_bytes: int) -> Pruned:
        """Drops nothing."""
        return Pruned(dropped=0, dropped_bytes=0, kept=0, kept_bytes=0, needed_bytes=0)

    def drop_old_leases(self) -> int:
        """Drops leases that ran out more than a day ago."""
        with self._lock:
            now = self._clock()
            old = [resource for resource, lease in self._leases.items() if lease.expires_at < now - OLD]
            for resource in old:
                del self._leases[resource]
            return len(old)
