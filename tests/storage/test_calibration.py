from __future__ import annotations

from collections.abc import Iterator

import pytest

import storage
from storage.memory import MemoryStore
from tests.storage.calibration_contract import CalibrationStoreContract
from tuner.stores import Store


class TestMemoryCalibration(CalibrationStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlCalibration(CalibrationStoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store
