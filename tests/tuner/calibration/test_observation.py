"""Rows of what devices took."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.storage.calibration_contract import observation
from tuner.errors import InvalidValue
from tuner.slices.names import parse_slice


def test_what_was_not_observed_is_refused() -> None:
    with pytest.raises(InvalidValue, match="finite"):
        observation(samples_s=())
    with pytest.raises(InvalidValue, match="finite"):
        observation(samples_s=(float("nan"),))
    with pytest.raises(InvalidValue, match="devices"):
        observation(slice=parse_slice("v5e-2x4"))
    with pytest.raises(InvalidValue, match="zone"):
        observation(observed_at=datetime(2026, 1, 1))


def test_the_spread_is_that_of_the_median() -> None:
    assert observation().spread == 0
    steady = observation(samples_s=(1.0, 1.01, 0.99, 1.0, 1.005))
    assert 0 < steady.spread < 0.01
