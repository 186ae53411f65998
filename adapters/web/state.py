"""What requests share: the store, opened when it is first needed, and how the service was started."""

from __future__ import annotations

import threading

import anyio
from starlette.datastructures import State

import storage
from adapters.web.api.kept import KeptPlans
from adapters.web.limits import Limits
from adapters.web.metrics import Metrics
from tuner.stores import Store


class ServiceState(State):
    """The application's state.

    Attributes:
        url: of the database; None for the default.
        token: what writes need; None if the service is read-only.
        limits: of body, page and time.
        metrics: what was counted since the service started.
        lane: how many short requests are worked on at once.
    """

    url: str | None
    token: str | None
    limits: Limits
    lock: threading.Lock
    metrics: Metrics
    lane: anyio.CapacityLimiter
    opened: tuple[Store, KeptPlans] | None

    def __init__(self, *, url: str | None, token: str | None, limits: Limits) -> None:
        super().__init__(
            {
                "url": url,
                "token": token,
                "limits": limits,
                "metrics": Metrics(),
                # A server is waited for, a file is read.
                "lane": anyio.CapacityLimiter(8 if (url or storage.default_url()).startswith("postgres") else 1),
                "opened": None,
                "lock": threading.Lock(),
            }
        )

    @property
    def store(self) -> Store:
        """The store. Raises StoreError while the database cannot be opened; the next request tries again."""
        return self._open()[0]

    @property
    def kept(self) -> KeptPlans:
        """The plans that were served last. Raises StoreError as `store` does."""
        return self._open()[1]

    def _open(self) -> tuple[Store, KeptPlans]:
        with self.lock:
            if self.opened is None:
                store = storage.open_store(self.url, read_only=self.token is None)
                self.opened = store, KeptPlans(store)
            return self.opened

    def close(self) -> None:
        """Closes the store if it was opened."""
        with self.lock:
            if self.opened is not None:
                self.opened[0].close()
                self.opened = None
