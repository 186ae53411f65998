"""Keeps leases alive while their owner lives, whatever the database does in between."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from tuner.errors import InvalidValue, StoreError
from tuner.leases import Lease, LeaseStore, new_owner

log = logging.getLogger(__name__)

BEATS = 4
"""How often a lease is renewed in its time to live: so many renewals but one may fail."""


class Heartbeat:
    """The leases of one owner, renewed by a thread until they are released.

    A renewal that fails is logged and tried again at the next beat, and never ends the work: a lease is lost only when
    somebody else has claimed it, and then its owner finds `holds` False. Safe for any number of threads.

    Attributes:
        owner: the name that the leases are held under.
    """

    def __init__(
        self,
        store: LeaseStore,
        *,
        ttl_s: float = 60.0,
        owner: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ttl_s <= 0:
            raise InvalidValue(f"a time to live of {ttl_s} s; more than 0 is legal")
        self.owner = owner or new_owner()
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Lease, float]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def claim(self, resource: str) -> Lease | None:
        """Claims a resource and keeps it; None while somebody holds it, this owner included."""
        asked = self._clock()
        lease = self._store.claim(resource, owner=self.owner, ttl_s=self._ttl_s)
        if lease is not None:
            with self._lock:
                self._held[lease.resource] = (lease, asked + self._ttl_s)
                self._start()
        return lease

    def holds(self, resource: str) -> bool:
        """Returns whether this owner holds a resource for certain: its lease was not lost and has time left."""
        with self._lock:
            _, until = self._held.get(resource, (None, 0.0))
        return self._clock() < until

    def release(self, resource: str) -> None:
        """Frees a resource; if the database is out of reach, its lease runs out."""
        with self._lock:
            lease, _ = self._held.pop(resource, (None, 0.0))
        if lease is not None:
            try:
                self._store.release(lease)
            except StoreError as error:
                log.warning("could not release %s, its lease will run out: %s", resource, error)

    def close(self) -> None:
        """Frees everything and ends the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for resource in list(self._held):
            self.release(resource)

    def beat(self) -> None:
        """Renews every lease once."""
        with self._lock:
            held = [lease for lease, _ in self._held.values()]
        for lease in held:
            asked = self._clock()
            try:
                renewed = self._store.renew(lease, ttl_s=self._ttl_s)
            except StoreError as error:
                log.warning("could not renew the lease of %s, trying again: %s", lease.resource, error)
                continue
            with self._lock:
                if lease.resource not in self._held:  # released meanwhile
                    continue
                if renewed is None:
                    log.warning("lost the lease of %s: somebody else has claimed it", lease.resource)
                    del self._held[lease.resource]
                else:
                    self._held[lease.resource] = (renewed, asked + self._ttl_s)

    def _start(self) -> None:
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="meshwright-heartbeat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._ttl_s / BEATS):
            try:
                self.beat()
            except Exception:  # a bug in a store must not leave the work without its leases
                log.exception("a heartbeat failed")
