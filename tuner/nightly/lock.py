"""The lock of a night: one at a time, on any number of hosts, and free again soon after a night that was killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

from tuner.errors import StoreError, TunerError
from tuner.leases import Lease, LeaseStore, new_owner

RESOURCE = "nightly"


class NightRuns(TunerError):
    """Another night holds the lock; the text says who and until when."""


class NightLock:
    """Holds the lease of the night and renews it in a thread of its own, so that no long compile lets it run out.

    Args:
        store: with the lease.
        ttl_s: how long the lease outlives this process.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, store: LeaseStore, *, ttl_s: float, owner: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._owner = owner or new_owner()
        self._clock = clock
        self._ended = threading.Event()
        self._lease: Lease | None = None
        self._thread = threading.Thread(target=self._keep, name="night-lock", daemon=True)
        self.lost = False

    def __enter__(self) -> NightLock:
        """Takes the lock. Raises NightRuns if another night holds it."""
        self._lease = self._store.claim(RESOURCE, owner=self._owner, ttl_s=self._ttl_s)
        if self._lease is None:
            held = next((lease for lease in self._store.leases(RESOURCE) if lease.resource == RESOURCE), None)
            who = "another night" if held is None else f"a night on {held.host or held.owner}"
            until = "" if held is None else f"; its lock runs out at {held.expires_at:%H:%M:%S} UTC unless renewed"
            raise NightRuns(f"{who} is running{until}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._lease is not None and not self.lost:
            with contextlib.suppress(StoreError):  # it runs out by itself
                self._store.release(self._lease)

    def _keep(self) -> None:
        """Renews the lease until the end. A database that is away is asked again while the lease may still hold."""
        assert self._lease is not None
        good_until = self._clock() + self._ttl_s
        while not self._ended.wait(self._ttl_s / 4):
            asked = self._clock()
            try:
                renewed = self._store.renew(self._lease, ttl_s=self._ttl_s)
            except StoreError:
                if self._clock() > good_until:
                    self.lost = True
                    return
                continue
            if renewed is None:
                self.lost = True
                return
            self._lease, good_until = renewed, asked + self._ttl_s
