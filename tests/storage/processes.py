"""Several processes that do the same thing at the same time, each with its own interpreter."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def together(count: int, setup: str, work: str, *arguments: str) -> list[str]:
    """Runs `work` in `count` processes that all start it when every one of them has finished `setup`.

    Both are Python text; they see the arguments as ``args`` and the process's number as ``me``. Returns what each wrote
    to its standard output; fails if one exits with an error.
    """
    program = "\n".join(
        [
            "import sys",
            "me, *args = sys.argv[1:]",
            "me = int(me)",
            textwrap.dedent(setup),
            "print('ready', flush=True)",
            "sys.stdin.readline()",
            textwrap.dedent(work),
        ]
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(number), *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    errors = [error for process, (_, error) in zip(processes, ended, strict=True) if process.returncode or error]
    assert not errors, "\n".join(errors)
    return [output for output, _ in ended]
