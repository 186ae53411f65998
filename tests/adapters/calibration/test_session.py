"""Calibration for real, on eight CPU devices of a child process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import storage
from adapters.calibration.session import Refused, observe
from adapters.cli.main import cli
from adapters.jax.live import WrongDevices
from tuner.calibration.calibration import CALIBRATIONS, calibration
from tuner.calibration.observation import Origin
from tuner.calibration.records import constants
from tuner.calibration.suite import suite
from tuner.plans.toolchain import installed_toolchain
from tuner.program.program import Loop
from tuner.slices.names import parse_slice

CPU = parse_slice("cpu-8")


def test_every_kind_of_benchmark_runs_on_cpu_devices() -> None:
    chosen = list({each.what: each for each in reversed(suite(CPU))}.values())
    found = list(observe(CPU, chosen))
    assert len(found) == len(chosen) >= 7
    for benchmark, outcome in zip(chosen, found, strict=True):
        assert not isinstance(outcome, Refused), outcome
        assert (outcome.what, outcome.name) == (benchmark.what, benchmark.name)
        assert (outcome.device_kind, outcome.slice, outcome.origin) == ("cpu", CPU, Origin.BENCHMARK)
        assert outcome.toolchain == installed_toolchain()
        assert outcome.host
        assert len(outcome.samples_s) >= 5
        (loop,) = outcome.program.schedule
        assert isinstance(loop, Loop)
        assert loop.trips >= 2


def test_a_tpu_slice_is_not_timed_on_cpu_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.calibration.session.run_environment", _cpu_environment)
    slice_ = parse_slice("v5e-2x4")
    with pytest.raises(WrongDevices, match="no TPU attached"):
        list(observe(slice_, suite(slice_)[:1]))


def _cpu_environment(*_: object) -> dict[str, str]:
    from adapters.jax.child import cpu_environment

    return cpu_environment(8)


def test_a_benchmark_that_hangs_ends_alone() -> None:
    chosen = [each for each in suite(CPU) if each.name.startswith("all-reduce of 8")][:2]
    slow, quick = (
        list(observe(CPU, [each], timeout_s=limit)) for each, limit in zip(chosen, (-1e3, 60.0), strict=True)
    )
    assert isinstance(slow[0], Refused)
    assert "nothing after" in slow[0].reason
    assert not isinstance(quick[0], Refused)


def test_the_command_times_keeps_and_fits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'calibration.db'}"
    arguments = ["calibrate", "--slice", "cpu-8", "--db", url]
    timed = CliRunner().invoke(cli, [*arguments, "--only", "all-reduce of 8", "--only", "pass", "--format", "json"])
    assert timed.exit_code == 0, timed.output
    fit = json.loads(timed.stdout)
    assert fit["generation"] == "cpu"
    assert fit["rows"] == 9
    with storage.open_store(url) as store:
        rows = store.observations("cpu", installed_toolchain())
        assert {row.what for row in rows} == {"all-reduce", "memory"}
        assert len(store.fits("cpu")) == 1
        assert store.leases("measure/") == []
        # What a CPU took is never said of a TPU.
        for generation in CALIBRATIONS:
            assert constants(store, generation, installed_toolchain()) == calibration(generation)
    again = CliRunner().invoke(cli, [*arguments, "--refit"])
    assert again.exit_code == 0, again.output
    assert "9 rows" in again.output
    assert ("Used from now on" in again.output) is fit["used"]


def test_a_slice_that_is_being_measured_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'calibration.db'}"
    with storage.open_store(url, create=True) as store:
        assert store.claim("measure/cpu-8", owner="other-host/1/ab", ttl_s=60)
        result = CliRunner().invoke(cli, ["calibrate", "--slice", "cpu-8", "--db", url, "--only", "pass"])
        assert result.exit_code == 1
        assert "other-host" in str(result.exception)
        assert list(store.observations("cpu")) == []


def test_what_cannot_be_asked_says_what_can(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'calibration.db'}"
    odd = CliRunner().invoke(cli, ["calibrate", "--slice", "cpu-8", "--db", url, "--only", "teleport"])
    assert "all-reduce" in str(odd.exception)
    none = CliRunner().invoke(cli, ["calibrate", "--slice", "cpu-8", "--db", url, "--refit"])
    assert "no rows of cpu" in str(none.exception)
