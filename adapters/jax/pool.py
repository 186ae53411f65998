"""Processes that compile ahead of time, several at once.

libtpu locks ``/tmp/libtpu_lockfile``, so that one process has the chips to itself; a second process that loads it is
told ABORTED. Processes that only compile need no chips, and ``ALLOW_MULTIPLE_LIBTPU_LOAD`` lets any number of them run.
It must not be set where chips are attached, because there it would let two processes take them; on such a machine the
pool compiles one at a time, under the lock.

This module imports no JAX; the workers do.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from adapters.jax.child import Child, chips_attached, cpu_environment
from adapters.jax.failures import aborted, late
from tuner.errors import TunerError
from tuner.layouts.layout import Candidate
from tuner.ports import Compiled, WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

_IMPORT_S = 60.0  # what a worker may take in addition for its first candidate


class CompilerBusy(TunerError):
    """Another process holds libtpu's lock; the text says which file and what to do."""


class CompilePool:
    """A `tuner.ports.Compiler` over worker processes, for any number of threads.

    A worker that dies costs the candidate that it was at and is replaced.

    Args:
        workers: processes, and compiles at once.
        timeout_s: for one candidate, lowering included.
        cpu_devices: that workers have, for slices of CPU devices.
        environment: further variables for workers.
        on_text: is given the digest of the lowered program and the zlib-compressed text of every compiled program, in
            the thread that asked for it.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        timeout_s: float = 600.0,
        cpu_devices: int = 1,
        environment: Mapping[str, str] | None = None,
        on_text: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._environment = worker_environment(cpu_devices) | dict(environment or {})
        self._on_text = on_text
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(1 if chips_attached() else workers):
            self._idle.put(None)
        self._lock = threading.Lock()
        self._living: set[_Worker] = set()
        self._closed = False

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the workers that are not running, so that they import JAX while something else goes on."""
        for worker in self._take_idle():
            self._idle.put(worker or self._new())

    def rest(self) -> None:
        """Ends the workers that are idle; the next compile starts new ones. Where chips are attached, an idle worker
        holds libtpu's lock, and with it the chips."""
        for worker in self._take_idle():
            if worker is not None:
                self._drop(worker)
            self._idle.put(None)

    def close(self) -> None:
        """Ends the workers; a compile under way in another thread raises TunerError there."""
        with self._lock:
            self._closed = True
            for worker in self._living:
                worker.end()
        for idle in self._take_idle():
            if idle is not None:
                self._drop(idle)
            self._idle.put(None)

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        """Compiles a candidate as `tuner.ports.Compiler` says.

        Raises what building the workload raises, ToolchainMissing without libtpu, and CompilerBusy if another process
        holds libtpu.
        """
        worker = self._idle.get()
        try:
            worker = worker or self._new()
            outcome = worker.run((workload, slice_, candidate, self._on_text is not None), self._timeout_s, known)
        finally:
            # Only a worker that has answered in full is used again: whoever leaves in the middle (an interrupt, an
            # error in `known`) leaves the worker in the middle too.
            if worker is not None and not worker.ready:
                self._drop(worker)
                worker = None
            self._idle.put(worker)
        if self._closed:
            raise TunerError("the compile pool was closed")
        if isinstance(outcome, BaseException):
            raise _explained(outcome)
        result, text = outcome
        if self._on_text is not None and isinstance(result, Compiled) and text:
            self._on_text(result.lowered_digest, text)
        return result

    def _take_idle(self) -> list[_Worker | None]:
        taken: list[_Worker | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._idle.get_nowait())
        return taken

    def _new(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise TunerError("the compile pool is closed")
            worker = _Worker(self._environment)
            self._living.add(worker)
            return worker

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._living.discard(worker)
        worker.dispose()


class _Worker(Child):
    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("adapters.jax.compile_worker", environment)
        self._grace_s = _IMPORT_S

    def run(
        self, request: tuple[Any, ...], timeout_s: float, known: Callable[[str], bool] | None
    ) -> tuple[Compiled | Rejection | None, bytes] | BaseException:
        """Returns the outcome and the text, or an exception that is not the candidate's fault."""
        deadline = time.monotonic() + timeout_s + self._grace_s
        self._grace_s = 0.0
        self.ready = False
        try:
            self.connection.send(request)
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                match self.connection.recv():
                    case ("digest", digest):
                        self.connection.send(known is not None and known(digest))
                    case ("outcome", outcome, text):
                        self.ready = True
                        return outcome, text
                    case ("error", error):
                        self.ready = True
                        assert isinstance(error, BaseException)
                        return error
        except (EOFError, BrokenPipeError, ConnectionResetError):
            death = self.death()
            return aborted(death.how, death.exit_code, death.last_words), b""
        return late(timeout_s), b""


def worker_environment(cpu_devices: int = 1) -> dict[str, str]:
    """Returns the environment of a process that only compiles: this one's modules and flags, and never a chip."""
    environment = cpu_environment(cpu_devices)
    environment.pop("ALLOW_MULTIPLE_LIBTPU_LOAD", None)
    if not chips_attached():
        environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    return environment


def _explained(error: BaseException) -> BaseException:
    if "lockfile" not in str(error):
        return error
    explained = CompilerBusy(
        "another process on this machine has loaded libtpu and holds /tmp/libtpu_lockfile; wait until it ends, or stop "
        "it. A file that a killed process left behind does no harm, since the lock ends with its process; remove it "
        f"only if it belongs to another user. libtpu says: {' '.join(str(error).split())[:200]}"
    )
    explained.__cause__ = error
    return explained
