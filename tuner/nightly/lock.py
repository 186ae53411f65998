"""The lock of a night: one at a time, on any number of hosts, and free again soon after a night that was killed."""

from __future__ import annotations

from types import TracebackType

from tuner.errors import TunerError
from tuner.heartbeat import Heartbeat
from tuner.leases import LeaseStore

RESOURCE = "nightly"


class NightRuns(TunerError):
    """Another night holds the lock; the text says who and until when."""


class NightLock:
    """Holds the lease of the night, and renews it so that no long compile lets it run out.

    Args:
        store: with the lease.
        ttl_s: how long the lease outlives this process.
        owner: who holds it; None for a new name.
    """

    def __init__(self, store: LeaseStore, *, ttl_s: float, owner: str | None = None) -> None:
        self._store = store
        self._heartbeat = Heartbeat(store, ttl_s=ttl_s, owner=owner)

    @property
    def lost(self) -> bool:
        """True if another night may have begun."""
        return not self._heartbeat.holds(RESOURCE)

    def __enter__(self) -> NightLock:
        """Takes the lock. Raises NightRuns if another night holds it."""
        if self._heartbeat.claim(RESOURCE) is None:
            held = next((lease for lease in self._store.leases(RESOURCE) if lease.resource == RESOURCE), None)
            if held is None:
                raise NightRuns("another night was running until a moment ago; try again")
            raise NightRuns(
                f"a night on {held.host or held.owner} is running; its lock runs out at {held.expires_at:%H:%M:%S} UTC "
                "unless renewed"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.close()
