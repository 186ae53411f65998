"""Calibration records."""

import json
from dataclasses import replace

import pytest

from tuner.calibration.calibration import CALIBRATIONS, Calibration, calibration
from tuner.errors import InvalidValue, UnknownName
from tuner.program.program import CollectiveKind
from tuner.slices.generations import GENERATIONS


def test_every_generation_has_a_record():
    assert CALIBRATIONS.keys() == GENERATIONS.keys()


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_records_survive_json(name):
    record = calibration(name)
    again = Calibration.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    assert again == record
    assert again.digest == record.digest


def test_the_digest_follows_every_constant():
    record = calibration("v7x")
    assert record.digest != replace(record, hop_s=2e-6).digest
    assert record.digest != replace(record, launches=()).digest


def test_a_kind_may_have_a_floor_of_its_own():
    record = calibration("v7x")
    assert record.launch_floor_s(CollectiveKind.ALL_REDUCE) > record.launch_floor_s(CollectiveKind.ALL_GATHER)
    assert record.launch_floor_s(CollectiveKind.ALL_GATHER) == record.launch_s


def test_what_cannot_be_is_refused():
    with pytest.raises(UnknownName, match="v5e"):
        calibration("v3")
    with pytest.raises(InvalidValue, match="at most 1"):
        Calibration(generation="v5e", link_bytes_per_s=1e9, link_efficiency=1.2)
