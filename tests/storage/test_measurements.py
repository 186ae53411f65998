from __future__ import annotations

from collections.abc import Iterator

import pytest

import storage
from storage.memory import MemoryStore
from tests.storage.measurement_contract import MeasurementStoreContract
from tuner.stores import Store


class TestMemoryMeasurements(MeasurementStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlMeasurements(MeasurementStoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store
