"""Two processes of four CPU devices each measure as one slice of eight."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters.jax.hosts import Hosts, Together
from adapters.jax.runner import DeviceRunner
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.names import parse_slice
from tuner.timings import Measured

SLICE = parse_slice("cpu-8")
FOLLOW = """
from pathlib import Path
import sys
from adapters.jax.hosts import Hosts
from adapters.jax.runner import follow
from tuner.slices.names import parse_slice
follow(parse_slice("cpu-8"), Hosts(coordinator=sys.argv[1], count=2, index=1), cache=Path(sys.argv[2]))
"""


@pytest.fixture
def coordinator() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def follower(coordinator: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", FOLLOW, coordinator, str(tmp_path)], start_new_session=True)
    yield process
    process.send_signal(2)  # as Ctrl-C: it ends its own child
    process.wait(timeout=30)


def measure(runner: DeviceRunner, name: str) -> Measured | Rejection:
    return runner.measure(
        WorkloadSpec(model=f"tests.adapters.jax.runnable:{name}"),
        SLICE,
        Candidate(layout=Layout.of({"data": 8, "other": 1})),
        Placement(devices=tuple(range(8))),
        enough=lambda samples: len(samples) >= 3,
    )


def test_all_hosts_run_the_same_trial_and_one_that_fails_fails_it_on_all(
    coordinator: str, follower: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    hosts = Hosts(coordinator=coordinator, count=2)
    with DeviceRunner(SLICE, hosts=hosts, cache=tmp_path, timeout_s=90) as runner:
        first = measure(runner, "fine")
        assert isinstance(first, Measured)
        assert (first.devices, first.hosts, len(first.samples_s)) == (8, 2, 3)
        failed = measure(runner, "fails_on_one_host")
        assert isinstance(failed, Rejection)
        assert (failed.stage, failed.reason) == (Stage.MEASURE, RejectReason.RUN_ERROR)
        assert "on host 1" in failed.detail
        assert "the second host has no luck" in failed.detail
        assert isinstance(measure(runner, "fine"), Measured)  # new processes on both hosts
        assert follower.poll() is None


@dataclass
class Coordinator:
    """A key-value store whose absent keys are never set."""

    values: dict[str, str] = field(default_factory=dict)

    def key_value_set(self, key: str, value: str) -> None:
        self.values[key] = value

    def blocking_key_value_get(self, key: str, timeout_ms: int) -> Any:
        if key not in self.values:
            raise RuntimeError(f"DEADLINE_EXCEEDED: {key} after {timeout_ms} ms")
        return self.values[key]


NO = Rejection(stage=Stage.MEASURE, reason=RejectReason.HBM, detail="too much", numbers={"needed_bytes": 7.0})


def test_hosts_agree_on_the_rejection_of_any() -> None:
    store = Coordinator()
    first, second = Together(store, 2, 0), Together(store, 2, 1)
    store.key_value_set("meshwright/turn/1/0", "")
    assert second.agree(NO) == NO
    found = first.agree(None)
    assert found is not None
    assert (found.reason, found.numbers, found.detail) == (NO.reason, NO.numbers, "on host 1: too much")


def test_a_host_that_does_not_answer_fails_the_trial() -> None:
    found = Together(Coordinator(), 2, 0, timeout_s=1).agree(None)
    assert found is not None
    assert found.reason is RejectReason.DEVICE_LOST
    assert "host 1 did not answer within 1 s" in found.detail


def test_process_0_decides() -> None:
    store = Coordinator()
    first, second = Together(store, 2, 0), Together(store, 2, 1)
    assert first.decide(17) == second.decide(3) == 17
    first.tell({"model": "m"})
    assert second.told() == {"model": "m"}


@pytest.mark.parametrize(
    ("changes", "wrong"), [({"coordinator": "host"}, "host:port"), ({"index": 2}, "process 2 of 2; 0 to 1")]
)
def test_what_are_no_hosts(changes: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidValue, match=wrong):
        Hosts(**{"coordinator": "a:1", "count": 2} | changes)
