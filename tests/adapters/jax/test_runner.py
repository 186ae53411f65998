"""The runner on real CPU devices: what runs is timed, and what goes wrong ends the trial and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.jax.runner import DeviceRunner, run_environment
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.names import parse_slice
from tuner.timings import Measured

SLICE = parse_slice("cpu-4")
ORDER = Placement(devices=(0, 1, 2, 3))


def spec(name: str) -> WorkloadSpec:
    return WorkloadSpec(model=f"tests.adapters.jax.runnable:{name}")


def candidate(data: int = 4) -> Candidate:
    return Candidate(layout=Layout.of({"data": data, "other": 4 // data}))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def runner(cache: Path) -> Iterator[DeviceRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        with DeviceRunner(SLICE, cache=cache, timeout_s=60) as runner:
            yield runner


def measure(runner: DeviceRunner, name: str, blocks: int = 4, data: int = 4) -> Measured | Rejection:
    return runner.measure(spec(name), SLICE, candidate(data), ORDER, enough=lambda samples: len(samples) >= blocks)


def test_a_step_is_checked_and_timed(runner: DeviceRunner) -> None:
    found = measure(runner, "fine_slow", blocks=5)
    assert isinstance(found, Measured)
    assert len(found.samples_s) == 5
    assert (found.device_kind, found.devices, found.hosts) == ("cpu", 4, 1)
    assert found.host
    assert found.toolchain.jax
    assert found.difference is not None
    assert found.difference < 2e-3
    assert (found.warm, found.donated) == (False, True)
    assert 0 < found.median_s < 10
    assert found.warmup >= 3


def test_what_was_measured_before_is_warm(runner: DeviceRunner) -> None:
    measure(runner, "fine", blocks=1)
    again = measure(runner, "fine", blocks=2)
    assert isinstance(again, Measured)
    assert again.warm


@pytest.mark.parametrize("name", ["computes_something_else", "divides_by_zero"])
def test_what_computes_something_else_is_wrong_and_never_timed(runner: DeviceRunner, name: str) -> None:
    found = measure(runner, name)
    assert isinstance(found, Rejection)
    assert (found.stage, found.reason) == (Stage.MEASURE, RejectReason.WRONG_RESULT)


def test_a_process_that_dies_ends_the_trial_and_not_the_next(runner: DeviceRunner) -> None:
    found = measure(runner, "ends_the_process")
    assert isinstance(found, Rejection)
    assert (found.stage, found.reason) == (Stage.MEASURE, RejectReason.RUN_ABORT)
    assert found.numbers["exit_code"] == 7
    assert isinstance(measure(runner, "fine"), Measured)


def test_memory_that_runs_out_ends_the_trial_and_not_the_next(runner: DeviceRunner) -> None:
    found = measure(runner, "needs_too_much")
    assert isinstance(found, Rejection)
    assert (found.stage, found.reason) == (Stage.MEASURE, RejectReason.HBM)
    assert isinstance(measure(runner, "fine"), Measured)


def test_a_hang_ends_the_trial_and_not_the_next(cache: Path) -> None:
    with DeviceRunner(SLICE, cache=cache, timeout_s=30) as runner:
        assert isinstance(measure(runner, "fine"), Measured)
        runner._timeout_s = 2.0
        found = measure(runner, "never_ends")
        assert isinstance(found, Rejection)
        assert (found.stage, found.reason, found.numbers["timeout_s"]) == (Stage.MEASURE, RejectReason.TIMEOUT, 2.0)
        runner._timeout_s = 60.0
        assert isinstance(measure(runner, "fine"), Measured)


def test_the_cache_is_set_before_a_model_that_makes_arrays_is_imported(runner: DeviceRunner, cache: Path) -> None:
    """Case 47: `tests.adapters.jax.runnable` makes one when it is imported."""
    measure(runner, "fine_slow", data=2)
    assert [path for path in cache.iterdir() if path.name.startswith("jit_")]


def test_a_child_for_a_tpu_sees_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, "cpu")
    environment = run_environment(parse_slice("v5e-2x2"), None, tmp_path)
    assert not {"JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"} & environment.keys()
    assert run_environment(SLICE, None, tmp_path)["JAX_NUM_CPU_DEVICES"] == "4"


def test_cpu_devices_never_stand_in_for_a_tpu_slice(cache: Path) -> None:
    v5e = parse_slice("v5e-2x2")
    with DeviceRunner(SLICE, cache=cache) as runner, pytest.raises(ValueError, match="cannot be measured on CPU"):
        runner.measure(spec("fine"), v5e, candidate(), ORDER, enough=lambda samples: True)


def test_a_trace_is_kept_where_it_was_asked_for(cache: Path, tmp_path: Path) -> None:
    with DeviceRunner(SLICE, cache=cache, trace=tmp_path) as runner:
        found = measure(runner, "fine", blocks=1)
    assert isinstance(found, Measured)
    assert list(Path(found.trace).rglob("*.xplane.pb"))
