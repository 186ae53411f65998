from __future__ import annotations

from collections.abc import Iterator

import pytest

import storage
from storage.memory import MemoryStore
from tests.storage.lease_contract import LeaseStoreContract
from tests.storage.processes import together
from tests.storage.work_contract import WorkStoreContract
from tuner.stores import Store


class TestMemoryWork(LeaseStoreContract, WorkStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlWork(LeaseStoreContract, WorkStoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store


def test_of_processes_that_claim_at_once_one_succeeds(url: str) -> None:
    outputs = together(
        6,
        """
        import storage
        from tuner.leases import new_owner
        store, owner = storage.open_store(args[0]), new_owner()
        store.leases()
        """,
        """
        for number in range(30):
            if store.claim(f"fresh/{number}", owner=owner, ttl_s=60):
                print(f"fresh/{number}")
        store.close()
        """,
        url,
    )
    claimed = [line for output in outputs for line in output.split()]
    assert sorted(claimed) == sorted(f"fresh/{number}" for number in range(30))
