"""Plans that a process keeps in memory: a stored version never changes, so only which one answers is asked anew."""

from __future__ import annotations

from functools import cached_property, lru_cache

from tuner.plans.plan import StoredDocument, StoredPlan
from tuner.stores import Store

KEPT = 1024


class KeptPlan:
    """A stored version as it is sent, and as a plan once somebody needs that."""

    def __init__(self, document: StoredDocument) -> None:
        self.document = document
        self.body = document.text.encode()

    @cached_property
    def stored(self) -> StoredPlan:
        """The plan itself."""
        return self.document.read()


class KeptPlans:
    """The plans that were served last, by id."""

    def __init__(self, store: Store) -> None:
        @lru_cache(maxsize=KEPT)
        def read(plan_id: int) -> KeptPlan:
            return KeptPlan(store.document(plan_id))

        self.read = read
