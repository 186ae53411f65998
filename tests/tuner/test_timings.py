from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.plans.samples import TOOLCHAIN
from tuner.errors import InvalidValue
from tuner.timings import Measured, is_steady

MEASURED = Measured(
    samples_s=(0.5, 0.4, 0.6, 0.5),
    steps=2,
    warmup=3,
    device_kind="TPU v5 lite",
    devices=8,
    host="host-1",
    toolchain=TOOLCHAIN,
    warm=True,
    difference=1e-6,
)


def test_a_measurement_says_what_it_is_of() -> None:
    document = MEASURED.to_json()
    assert document["device_kind"] == "TPU v5 lite"
    assert (document["host"], document["warm"], document["toolchain"]["jax"]) == ("host-1", True, TOOLCHAIN.jax)
    assert (document["median_s"], document["quartiles_s"], document["steady"]) == (0.5, [0.475, 0.525], False)


def test_it_reads_back_from_json() -> None:
    assert Measured.from_json(json.loads(json.dumps(MEASURED.to_json()))) == MEASURED
    with pytest.raises(InvalidValue, match="incomplete"):
        Measured.from_json({"samples_s": [1.0]})


@pytest.mark.parametrize("samples", [(), (0.0,), (-1.0,), (float("nan"),), (float("inf"),)])
def test_what_is_no_time(samples: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValue, match="above 0 s"):
        replace(MEASURED, samples_s=samples)


@pytest.mark.parametrize(
    ("samples", "steady"),
    [
        ([1.0, 1.01, 0.99, 1.0], True),
        ([1.0, 1.0, 1.5, 1.0, 1.0, 1.0], True),  # one outlier
        ([1.0, 1.02, 1.1, 1.12, 1.2, 1.22], False),  # a device that slows down
        ([2.0, 1.5, 1.0, 1.0, 1.0, 1.0], False),  # one that was not warm
        ([1.0, 1.0, 1.0], False),  # too few to say
    ],
)
def test_steady_is_when_both_halves_have_the_same_median(samples: list[float], steady: bool) -> None:
    assert is_steady(samples) is steady


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.floats(0.01, 100))
def test_a_median_lies_between_the_quartiles_and_scales(samples: list[float], factor: float) -> None:
    measured = replace(MEASURED, samples_s=tuple(samples))
    first, third = measured.quartiles_s
    assert first <= measured.median_s <= third
    scaled = replace(MEASURED, samples_s=tuple(sample * factor for sample in samples))
    assert scaled.median_s == pytest.approx(measured.median_s * factor)
