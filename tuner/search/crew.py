"""The crew of a study: every process that searches it, each of which takes the next candidate that no other holds.

There is no scheduler. A candidate is taken by the lease of its content key, so that no two workers compile one, not
even for two studies. One of the crew keeps the books (it writes what the screen rejects, returns the trials of vanished
workers to the queue, and its time is the study's); when it goes, the next one that looks takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from tuner.heartbeat import Heartbeat
from tuner.layouts.layout import Candidate
from tuner.leases import Lease
from tuner.search.cache import Subject, compile_resource
from tuner.stores import Store

TTL_S = 60.0
"""Seconds after which the work of a worker that vanished goes to another one."""

MOST_VANISHED = 3
"""So many workers may vanish while they hold a candidate before it is held to be what ends them."""

_LOOKS = 20.0  # how often, in the time that a lease lives, a worker looks for what has changed
_SLOWEST_LOOK_S = 1.0


class Crew:
    """One worker's place in the crew of a study. A context manager: on leaving, everything that is held is free.

    Args:
        store: with the leases.
        study_id: the study.
        subject: what its candidates are candidates of.
        ttl_s: seconds that a lease outlives its worker.
        clock: monotonic, in seconds.
        pause: sleeps so many seconds.
    """

    def __init__(
        self,
        store: Store,
        study_id: int,
        subject: Subject,
        *,
        ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.heartbeat = Heartbeat(store, ttl_s=ttl_s, clock=clock)
        self.ttl_s = ttl_s
        self._store = store
        self._study_id = study_id
        self._subject = subject
        self._clock = clock
        self._pause = pause
        self._look_s = min(_SLOWEST_LOOK_S, ttl_s / _LOOKS)
        self._asked = -1e9
        self._keeping_since: float | None = None
        self._open_until = -1e9
        self._books = f"study/{study_id}"
        self._members = f"worker/{study_id}/"

    def __enter__(self) -> Crew:
        self.heartbeat.claim(self._members + self.heartbeat.owner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heartbeat.close()

    @property
    def keeper(self) -> bool:
        """Whether this worker keeps the books; it takes them if nobody does."""
        if self.heartbeat.holds(self._books):
            return True
        now = self._clock()
        if now - self._asked < self._look_s:
            return False
        self._asked = now
        if self.heartbeat.claim(self._books) is None:
            return False
        if self._keeping_since is None:
            self._keeping_since = now
        return True

    @property
    def kept_s(self) -> float:
        """Seconds since this worker has kept the books, which count as the study's; 0 if it does not."""
        return 0.0 if self._keeping_since is None else self._clock() - self._keeping_since

    @property
    def alone(self) -> bool:
        """Whether no other worker is at the study."""
        return all(lease.owner == self.heartbeat.owner for lease in self._store.leases(self._members))

    @property
    def wanted(self) -> bool:
        """Whether the study is open; asked of the store every now and then."""
        now = self._clock()
        if now < self._open_until:
            return True
        if all(task.study_id != self._study_id for task in self._store.tasks()):
            return False
        self._open_until = now + self._look_s
        return True

    def take(self, candidate: Candidate) -> Lease | None:
        """Takes a candidate; None while somebody holds it."""
        return self.heartbeat.claim(self.resource(candidate))

    def give_back(self, candidate: Candidate) -> None:
        """Gives a candidate free."""
        self.heartbeat.release(self.resource(candidate))

    def busy(self) -> set[str]:
        """Returns the resources of all candidates that somebody holds, of this study and of others."""
        return {lease.resource for lease in self._store.leases(compile_resource(""))}

    def resource(self, candidate: Candidate) -> str:
        """Returns what the lease of a candidate is called."""
        return compile_resource(self._subject.key(candidate).digest)

    def alive(self) -> Callable[[str], bool]:
        """Returns what says whether the worker at the candidate of a digest may live, as of now.

        Of an empty digest only another worker knows: it asks Optuna for a trial before it says what of.
        """
        alone, busy = self.alone, self.busy()
        return lambda digest: (
            not alone and (not digest or compile_resource(self._subject.key_of(digest).digest) in busy)
        )

    def wait(self) -> None:
        """Waits a moment for others."""
        self._pause(self._look_s)

    @contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """Waits until nobody else does what is named here for the study, and then lets nobody else do it."""
        resource = f"{what}/{self._study_id}"
        while self.heartbeat.claim(resource) is None:
            self.wait()
        try:
            yield
        finally:
            self.heartbeat.release(resource)
