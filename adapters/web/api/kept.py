"""Plans that a process keeps in memory: a stored version never changes, so only which one answers is asked anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tuner.canonical import canonical_json
from tuner.plans.plan import StoredPlan
from tuner.stores import Store

KEPT = 1024


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A stored version and its document as it is sent."""

    stored: StoredPlan
    body: bytes


class KeptPlans:
    """The plans that were served last, by id."""

    def __init__(self, store: Store) -> None:
        @lru_cache(maxsize=KEPT)
        def read(plan_id: int) -> KeptPlan:
            stored = store.plan(plan_id)
            return KeptPlan(stored, canonical_json(stored.plan.to_json()).encode())

        self.read = read
