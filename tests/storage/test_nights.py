from __future__ import annotations

from collections.abc import Iterator

import pytest

import storage
from storage.memory import MemoryStore
from tests.storage.night_contract import NightStoreContract
from tuner.stores import Store


class TestMemoryNights(NightStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlNights(NightStoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store
