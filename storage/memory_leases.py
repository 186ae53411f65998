"""Leases of a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from storage.documents import clean
from tuner.leases import Lease, LeaseStore, host_of


class MemoryLeaseStore(LeaseStore):
    """Leases in a dictionary. Safe for the threads of one process."""

    _clock: Callable[[], datetime]
    _lock: threading.RLock
    _leases: dict[str, Lease]

    def claim(self, resource: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Returns the lease if the resource was free or its lease had run out."""
        resource, now = clean(resource), self._clock()
        with self._lock:
            held = self._leases.get(resource)
            if held is not None and held.expires_at > now:
                return None
            self._leases[resource] = Lease(
                resource=resource,
                owner=clean(owner),
                host=clean(host_of(owner)),
                claims=1 if held is None else held.claims + 1,
                claimed_at=now,
                expires_at=now + timedelta(seconds=ttl_s),
            )
            return self._leases[resource]

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Returns the lease with `ttl_s` seconds more from now, or None if it was lost."""
        with self._lock:
            held = self._held(lease)
            if held is None:
                return None
            self._leases[held.resource] = replace(held, expires_at=self._clock() + timedelta(seconds=ttl_s))
            return self._leases[held.resource]

    def release(self, lease: Lease) -> bool:
        """Frees the resource; returns False if the lease was lost."""
        with self._lock:
            held = self._held(lease)
            if held is not None:
                del self._leases[held.resource]
            return held is not None

    def leases(self, prefix: str = "") -> Sequence[Lease]:
        """Returns the leases that have not run out of resources that begin with `prefix`."""
        with self._lock:
            now = self._clock()
            return [
                lease
                for resource, lease in sorted(self._leases.items())
                if resource.startswith(clean(prefix)) and lease.expires_at > now
            ]

    def _held(self, lease: Lease) -> Lease | None:
        held = self._leases.get(clean(lease.resource))
        return held if held is not None and held.owner == clean(lease.owner) else None
