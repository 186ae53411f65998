"""A child process that works on requests: it may abort, hang or be killed, and takes nothing else down with it.

This module imports no JAX; the children do.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import IO

_TAIL_BYTES = 20_000
_FATAL = re.compile(r"F\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ")  # how libtpu's log marks the message that it dies with


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a child ended: in words, its exit code (negative for a signal), and what it said last."""

    how: str
    exit_code: int
    last_words: str


class Child:
    """Runs ``python -m MODULE FD ARGUMENTS`` with a pipe to it.

    Attributes:
        connection: this end of the pipe.
        ready: kept by the owner: False while a request is on its way, so that who leaves in the middle leaves a child
            that must not be used again.
    """

    def __init__(self, module: str, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        self.connection, theirs = Pipe()
        self.ready = True
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=dict(environment),
                start_new_session=True,  # Ctrl-C is for the search, which then ends its children
            )

    def end(self) -> None:
        """Kills the process, from any thread."""
        self._process.kill()

    def dispose(self) -> None:
        """Kills the process and frees what belongs to it; only for the thread that has the child."""
        self._process.kill()
        self._process.wait()
        self.connection.close()
        self._log.close()

    def death(self) -> Death:
        """Waits for the end of a process whose pipe has closed and returns how it came."""
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Death(how=how, exit_code=code, last_words=self._last_words())

    def _last_words(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL_BYTES))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if _FATAL.match(line)]
        telling = fatal or [line for line in lines if "Error" in line] or lines or ["it said nothing"]
        return _FATAL.sub("", telling[-1]).strip()


def chips_attached() -> bool:
    """Returns True on a machine with TPU chips."""
    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def cpu_environment(devices: int = 1) -> dict[str, str]:
    """Returns the environment of a process with this one's modules and flags, CPU devices, and never a chip."""
    # Set, the flag would overrule the number of devices.
    flags = " ".join(
        flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag
    )
    return {
        **module_environment(),
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "TPU_SKIP_MDS_QUERY": "1",
    }


def module_environment() -> dict[str, str]:
    """Returns this process's environment, in which a child finds the same modules."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}
