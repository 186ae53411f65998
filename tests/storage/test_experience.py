from __future__ import annotations

from collections.abc import Iterator

import pytest

import storage
from storage.memory import MemoryStore
from tests.storage.experience_contract import ExperienceStoreContract
from tuner.stores import Store


class TestMemoryExperience(ExperienceStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlExperience(ExperienceStoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store
