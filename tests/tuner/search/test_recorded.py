from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.measurement_contract import measurement
from tuner.errors import InvalidValue
from tuner.plans.toolchain import Toolchain
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.search.recorded import RecordedRunner, Recording, WrongRecording
from tuner.slices.names import parse_slice
from tuner.timings import Measured

ROW = measurement()
RECORDING = Recording.of([ROW])


def replay(runner: RecordedRunner, count: int) -> Measured | Rejection:
    spec = WorkloadSpec(model="m")
    return runner.measure(spec, ROW.slice, ROW.candidate, ROW.placement, enough=lambda samples: len(samples) >= count)


def test_samples_come_in_their_order_and_from_the_start_again() -> None:
    runner = RecordedRunner(RECORDING, ROW.toolchain)
    first, second = replay(runner, 2), replay(runner, 3)
    assert isinstance(first, Measured)
    assert isinstance(second, Measured)
    assert first.samples_s + second.samples_s == (0.5, 0.25, 0.75, 0.5, 0.25)
    assert (first.device_kind, first.toolchain, runner.runs) == ("TPU v5 lite", ROW.toolchain, 5)


def test_what_was_not_recorded_does_not_run() -> None:
    runner = RecordedRunner(replace(RECORDING, samples_s={}), ROW.toolchain)
    found = replay(runner, 1)
    assert isinstance(found, Rejection)
    assert found.reason is RejectReason.RUN_ERROR


@pytest.mark.parametrize("part", ["jax", "jaxlib", "libtpu"])
def test_a_recording_of_another_toolchain_is_refused(part: str) -> None:
    other = replace(ROW.toolchain, **{part: "9.9"})
    with pytest.raises(WrongRecording, match=f"{part} .* is now 9.9"):
        RecordedRunner(RECORDING, other)


def test_a_recording_of_another_slice_is_refused() -> None:
    runner = RecordedRunner(RECORDING, ROW.toolchain)
    with pytest.raises(WrongRecording, match="recording of v5e-2x4 does not serve v5e-4x2"):
        runner.measure(
            WorkloadSpec(model="m"), parse_slice("v5e-4x2"), ROW.candidate, ROW.placement, enough=lambda samples: True
        )


def test_measurements_of_two_toolchains_make_no_recording() -> None:
    other = replace(ROW, toolchain=Toolchain(jax="1", jaxlib="1", libtpu="1"), id=2)
    with pytest.raises(WrongRecording):
        Recording.of([ROW, other])
    with pytest.raises(InvalidValue, match="no measurements"):
        Recording.of([])


def test_a_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    path.write_text(json.dumps(RECORDING.to_json()))
    assert Recording.read(path) == RECORDING
    path.write_text(json.dumps(RECORDING.to_json() | {"schema_version": 2}))
    with pytest.raises(InvalidValue, match="schema_version 2"):
        Recording.read(path)
    path.write_text("{")
    with pytest.raises(InvalidValue, match="is no recording"):
        Recording.read(path)
