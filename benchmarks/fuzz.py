"""A hundred thousand inputs that nobody means well: plan files, kept answers, settings and requests.

    python benchmarks/fuzz.py [--inputs 100000]

Each must be taken or refused in plain words: no traceback, no 5xx, nothing written. `tests/fuzz.py` says how.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import fuzz


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--only", choices=["plan files", "kept answers", "settings", "requests"])
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    for name, share, run in (
        ("plan files", 0.35, lambda n, _: fuzz.plan_files(n)),
        ("kept answers", 0.10, fuzz.kept_answers),
        ("settings", 0.15, fuzz.settings_files),
        ("requests", 0.40, fuzz.http_requests),
    ):
        if arguments.only not in (None, name):
            continue
        count, started = int(arguments.inputs * share), time.monotonic()
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache  # where lookups keep good answers
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                run(count, Path(directory))
        print(f"{name:14}{count:7} inputs, all taken or refused; {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
