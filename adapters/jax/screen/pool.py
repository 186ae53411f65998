"""Worker processes that screen: Shardy may abort a process, and lowering for a TPU must never see one.

This module imports no JAX; the workers do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import IO, Any, cast

from tuner.layouts.layout import Candidate
from tuner.ports import Screened, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice

_TAIL_BYTES = 4000


class ShardyScreener:
    """Screens candidates in worker processes, which start at the first call and stay until `close`.

    A worker that dies costs the candidate that it was at, which is rejected as ``screen-abort``, and is replaced; one
    that takes longer than `timeout_s` likewise, as ``timeout``.

    Args:
        workers: processes.
        timeout_s: for one candidate; the first of a worker has the time to import JAX in addition.
    """

    def __init__(self, *, workers: int = 1, timeout_s: float = 60.0) -> None:
        self._count = workers
        self._timeout_s = timeout_s
        self._workers: list[_Worker] = []
        self._devices = 0

    def __enter__(self) -> ShardyScreener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def screen(
        self, workload: WorkloadSpec, slice_: Slice, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        """Yields an outcome for every candidate, as they are ready. Raises what building the workload raises."""
        waiting = list(candidates)
        self._start(slice_.num_devices, min(self._count, len(waiting)))
        try:
            while waiting or any(worker.candidate is not None for worker in self._workers):
                for worker in self._workers:
                    if worker.candidate is None and waiting:
                        worker.send(workload, waiting.pop(self._next(worker, waiting)), self._timeout_s)
                yield from self._answers()
        finally:
            # Who left in the middle must not get an old answer to a new question.
            for worker in [worker for worker in self._workers if worker.candidate is not None]:
                self._drop(worker)

    def _next(self, worker: _Worker, waiting: Sequence[Candidate]) -> int:
        """Returns which candidate suits a worker: of the mesh that it has just traced, else one that no other has.

        JAX keeps the traces of a mesh, so the second candidate of one takes a third of the time of the first.
        """
        taken = {other.mesh for other in self._workers if other is not worker}
        meshes = [candidate.layout.axes for candidate in waiting]
        if worker.mesh in meshes:
            return meshes.index(worker.mesh)
        return next((index for index, mesh in enumerate(meshes) if mesh not in taken), 0)

    def _start(self, devices: int, count: int) -> None:
        if devices > self._devices:
            self.close()
            self._devices = devices
        while len(self._workers) < count:
            self._workers.append(_Worker(self._devices))

    def _drop(self, worker: _Worker) -> None:
        worker.stop()
        self._workers.remove(worker)

    def _answers(self) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        busy = {worker.connection: worker for worker in self._workers if worker.candidate is not None}
        patience_s = min(worker.deadline for worker in busy.values()) - time.monotonic()
        ready = cast("list[Connection]", wait(list(busy), timeout=max(0.0, patience_s)))
        late = [worker for worker in busy.values() if worker.deadline <= time.monotonic()]
        for worker in [busy[connection] for connection in ready] or late:
            candidate = worker.candidate
            assert candidate is not None
            outcome = worker.receive() if worker.connection in ready else worker.late(self._timeout_s)
            if not worker.alive:
                self._drop(worker)
                self._workers.append(_Worker(self._devices))
            if isinstance(outcome, BaseException):
                raise outcome
            yield candidate, outcome


class _Worker:
    def __init__(self, devices: int) -> None:
        self.connection, theirs = Pipe()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed by `stop`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adapters.jax.screen.worker", str(theirs.fileno()), str(devices)],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            env=_environment(),
        )
        theirs.close()
        self.candidate: Candidate | None = None
        self.mesh: tuple[tuple[str, int], ...] = ()
        self.deadline = 0.0
        self.alive = True
        self._started = False

    def send(self, workload: WorkloadSpec, candidate: Candidate, timeout_s: float) -> None:
        self.candidate = candidate
        self.mesh = candidate.layout.axes
        self.deadline = time.monotonic() + timeout_s + (0.0 if self._started else 60.0)
        self._started = True
        with contextlib.suppress(BrokenPipeError):  # it has died; `receive` says so
            self.connection.send((workload, candidate))

    def receive(self) -> Any:
        try:
            outcome = self.connection.recv()
        except (EOFError, ConnectionResetError):
            outcome = self._died()
        self.candidate = None
        return outcome

    def late(self, timeout_s: float) -> Rejection:
        self.alive = False
        self.candidate = None
        return Rejection(
            stage=Stage.SCREEN,
            reason=RejectReason.TIMEOUT,
            detail=f"the screen took longer than {timeout_s:g} s",
            numbers={"timeout_s": timeout_s},
        )

    def stop(self) -> None:
        self.connection.close()
        if self.candidate is not None or not self.alive:
            self._process.kill()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def _died(self) -> Rejection:
        self.alive = False
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Rejection(
            stage=Stage.SCREEN,
            reason=RejectReason.SCREEN_ABORT,
            detail=f"the screen's process ended with {how}: {self._last_words()}",
            numbers={"exit_code": code},
        )

    def _last_words(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _TAIL_BYTES))
        lines = self._stderr.read().decode(errors="replace").splitlines()
        telling = [line for line in lines if "Check failed" in line or "Error" in line or "ERROR" in line]
        return (telling or [line for line in lines if line.strip()] or ["it said nothing"])[-1].strip()[:400]


def _environment() -> dict[str, str]:
    """Returns the environment of a worker: this one's modules, and no TPU, though one may be attached."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # Set, the flag would overrule the number of devices that a worker is asked for.
    flags = " ".join(
        flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag
    )
    return {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
