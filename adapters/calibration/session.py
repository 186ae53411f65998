"""Timing a suite from a process that never touches the devices; they belong to a child.

This module imports no JAX; the child does.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from adapters.jax.child import Child
from adapters.jax.runner import run_environment
from tuner.calibration.observation import Observation, Origin
from tuner.calibration.suite import Benchmark
from tuner.plans.toolchain import installed_toolchain
from tuner.slices.slice import Slice

_MODULE = "adapters.calibration.worker"
_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A benchmark that did not run, and why."""

    benchmark: Benchmark
    reason: str


def observe(
    slice_: Slice, benchmarks: Sequence[Benchmark], *, timeout_s: float = 120.0, cache: Path | None = None
) -> Iterator[Observation | Refused]:
    """Yields an outcome for every benchmark, as it is timed.

    Args:
        slice_: what the attached devices must be; a slice of CPU devices gets a process with as many of them.
        benchmarks: of the slice's suite.
        timeout_s: for one benchmark; one that takes longer is refused, with a new process for the next.
        cache: directory of compiled executables; None for the user's cache directory.

    Raises WrongDevices if the attached devices are not the slice.
    """
    toolchain, host = installed_toolchain(), platform.node()
    child: Child | None = None
    try:
        for benchmark in benchmarks:
            fresh = child is None
            if child is None:
                child = Child(_MODULE, run_environment(slice_, None, cache))
            reason = ""
            try:
                child.connection.send((slice_, benchmark))
                if child.connection.poll(timeout_s + (_START_S if fresh else 0.0)):
                    match child.connection.recv():
                        case ("timed", program, placement, samples, kind):
                            yield Observation(
                                what=benchmark.what,
                                name=benchmark.name,
                                slice=slice_,
                                program=program,
                                placement=placement,
                                samples_s=samples,
                                origin=Origin.BENCHMARK,
                                device_kind=kind,
                                host=host,
                                toolchain=toolchain,
                                observed_at=datetime.now(UTC),
                            )
                            continue
                        case ("error", error):
                            raise error
                        case (_, said):
                            yield Refused(benchmark=benchmark, reason=said)
                            continue
                reason = f"nothing after {timeout_s:.0f} s"
            except (EOFError, BrokenPipeError, ConnectionResetError):
                death = child.death()
                reason = f"its process ended by {death.how}: {death.last_words}"
            child.dispose()
            child = None
            yield Refused(benchmark=benchmark, reason=reason)
    finally:
        if child is not None:
            child.dispose()
