"""Measuring on attached devices from a process that never touches them.

The devices belong to a child process. It is started with the first candidate and stays, so that finalists can be timed
in turns; when it hangs, dies or loses its devices, the candidate that it was at ends, and the next one gets a new
child.

This module imports no JAX; the child does.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from adapters.jax.cache import cache_environment
from adapters.jax.child import Child, cpu_environment, module_environment
from adapters.jax.failures import run_aborted, run_late
from adapters.jax.hosts import Hosts
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain, installed_toolchain
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.slices.slice import Slice
from tuner.timings import Measured

_MODULE = "adapters.jax.run_worker"
_START_S = 120.0  # what a child may take in addition to import JAX and to take the devices
_KEEPS_CHILD = frozenset({RejectReason.WRONG_RESULT})


class DeviceRunner:
    """A `tuner.ports.Runner` for the devices of this host, and of further hosts that follow it.

    Args:
        slice_: what the devices must be. A slice of CPU devices gets a child with as many of them.
        timeout_s: for one candidate: compile, check and timing.
        cache: directory of compiled executables; None for the user's cache directory.
        trace: directory for profiler traces, one for each candidate; None for none.
        hosts: this process among those of a slice that spans hosts; it must be the first.
        before: is called before a child takes the devices, to let go of whoever else holds them.
    """

    def __init__(
        self,
        slice_: Slice,
        *,
        timeout_s: float = 600.0,
        cache: Path | None = None,
        trace: Path | None = None,
        hosts: Hosts | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._slice = slice_
        self._timeout_s = timeout_s
        self._cache = cache
        self._trace = trace
        self._hosts = hosts
        self._before = before
        self._child: Child | None = None
        self._toolchain: Toolchain = installed_toolchain()

    def __enter__(self) -> DeviceRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the devices."""
        if self._child is not None:
            self._child.dispose()
            self._child = None

    def measure(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        *,
        enough: Callable[[Sequence[float]], bool],
    ) -> Measured | Rejection:
        """Times a candidate as `tuner.ports.Runner` says.

        Raises WrongDevices if the attached devices are not the slice, and what building the workload raises.
        """
        trace = "" if self._trace is None else str(self._trace / candidate.digest[:12])
        request = (workload, slice_, candidate, placement, trace)
        fresh = self._child is None
        if self._child is None:
            self._before()
            self._child = Child(_MODULE, run_environment(self._slice, self._hosts, self._cache), self._arguments())
        child, samples = self._child, list[float]()
        finished = False
        try:
            answer = self._answer(child, request, samples, enough, _START_S if fresh else 0.0)
            finished = not isinstance(answer, Rejection) or answer.reason in _KEEPS_CHILD
        finally:
            # After anything else the child may hold memory, a dead device, or an answer to an old question.
            if not finished:
                self.close()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _answer(
        self,
        child: Child,
        request: tuple[Any, ...],
        samples: list[float],
        enough: Callable[[Sequence[float]], bool],
        grace_s: float,
    ) -> Measured | Rejection | BaseException:
        deadline = time.monotonic() + self._timeout_s + grace_s
        try:
            child.connection.send(request)
            while child.connection.poll(max(0.0, deadline - time.monotonic())):
                match child.connection.recv():
                    case ("sample", seconds):
                        samples.append(seconds)
                        child.connection.send(not enough(tuple(samples)))
                    case ("timing", timing, kind, devices, hosts):
                        return Measured(
                            samples_s=tuple(samples),
                            steps=timing.steps,
                            warmup=timing.warmup,
                            device_kind=kind,
                            devices=devices,
                            hosts=hosts,
                            host=platform.node(),
                            toolchain=self._toolchain,
                            compile_s=timing.compile_s,
                            warm=timing.warm,
                            difference=timing.difference,
                            unchecked=timing.unchecked,
                            donated=timing.donated,
                            trace=timing.trace,
                        )
                    case ("rejection", rejection):
                        assert isinstance(rejection, Rejection)
                        return rejection
                    case ("error", error):
                        assert isinstance(error, BaseException)
                        return error
        except (EOFError, BrokenPipeError, ConnectionResetError):
            death = child.death()
            return run_aborted(death.how, death.exit_code, death.last_words)
        return run_late(self._timeout_s)

    def _arguments(self) -> list[str]:
        return [] if self._hosts is None else self._hosts.arguments()


def run_environment(slice_: Slice, hosts: Hosts | None, cache: Path | None) -> dict[str, str]:
    """Returns the environment of a process that measures on a slice."""
    if slice_.generation.has_links:
        environment = module_environment()
        # Set for processes that only compile, these would keep this one off the chips, or let another one onto them.
        for name in ("JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
            environment.pop(name, None)
    else:
        count = 1 if hosts is None else hosts.count
        environment = cpu_environment(slice_.num_devices // count)
    return environment | cache_environment(cache, environ=environment)


def follow(slice_: Slice, hosts: Hosts, *, cache: Path | None = None, rounds: int | None = None) -> None:
    """Takes this host's part in measurements that process 0 of the slice decides on, until it is interrupted.

    When a trial fails anywhere, the processes of all hosts end; this starts the next one, which waits for the next
    process 0.

    Args:
        slice_: what the devices of all hosts make up.
        hosts: this process among them.
        cache: directory of compiled executables; None for the user's cache directory.
        rounds: processes to start before it returns; None for no end.
    """
    done = 0
    while rounds is None or done < rounds:
        started = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE, "-1", *hosts.arguments()],
            stdin=subprocess.DEVNULL,
            env=run_environment(slice_, hosts, cache),
        )
        try:
            child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        done += 1
        if time.monotonic() - started < 1:  # it did not even start
            time.sleep(1)


def hosts_from(coordinator: str | None, processes: int, index: int = 0) -> Hosts | None:
    """Returns the hosts that options name; None without a coordinator."""
    return None if not coordinator else Hosts(coordinator=coordinator, count=processes, index=index)
