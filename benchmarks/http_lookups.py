"""Lookups over HTTP while a study writes to the same SQLite file, with wrk.

    python benchmarks/http_lookups.py [URL] [--seconds 10] [--connections 32] [--trials-per-second 50]

URL is an SQLite database of `benchmarks/big_store.py`; without one, a small one is made. wrk is a package of most
distributions (apt install wrk). The targets: at least 1,000 lookups per second at 32 connections, p99 at most 60 ms.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import storage
from benchmarks.big_store import MODELS, SHAPES, SLICES, TOOLCHAINS, fill, study_key, trials

ROOT = Path(__file__).parents[1]
RATE, P99_MS = 1000, 60.0

SCRIPT = """
local models, shapes, slices = {{{models}}}, {{{shapes}}}, {{{slices}}}
function request()
  local path = "/v1/plans/" .. models[math.random(#models)] .. "/" .. shapes[math.random(#shapes)] .. "/"
    .. slices[math.random(#slices)] .. "?toolchain={toolchain}"
  return wrk.format("GET", path)
end
"""


def write(url, per_second, counter):
    """A study that goes on: one trial after another, as a search stores them."""
    with storage.open_store(url) as store:
        key = study_key(0)
        study = store.open_study(key)
        ahead = len(store.trials(study.id))
        for trial in trials(key.slice, 10**9):
            if trial.number < ahead:
                continue
            started = time.monotonic()
            store.save_trials(study.id, [trial])
            counter.value += 1
            time.sleep(max(0.0, 1 / per_second - (time.monotonic() - started)))


def processor_s(process):
    """Processor time of a process so far, its threads included; what a loaded machine does not change much."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def served(url, number):
    code = "from adapters.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", str(number), "--db", url], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{number}/readyz", timeout=1).close()
            return process
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise SystemExit("the service did not start")


def quoted(words):
    return ", ".join(f'"{word}"' for word in words)


def load(number, seconds, connections, plans):
    """Returns wrk's report. The models and slices that it asks for are those that the database has plans of."""
    shapes, slices = (SHAPES, SLICES) if plans >= 100_000 else (SHAPES[:20], SLICES[:1])
    script = SCRIPT.format(
        models=quoted(MODELS if plans >= 100_000 else MODELS[:1]),
        shapes=quoted(shapes),
        slices=quoted(slice_.name for slice_ in slices),
        toolchain=TOOLCHAINS[2].spelled,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name]
        return subprocess.run(
            [*command, f"http://127.0.0.1:{number}"], capture_output=True, text=True, check=True
        ).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--trials-per-second", type=float, default=50.0)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        print("skipped: wrk is not installed (apt install wrk)")
        return
    with tempfile.TemporaryDirectory(prefix="meshwright-") as directory:
        url, plans = arguments.url, 100_000
        if url is None:
            url, plans = f"sqlite:///{directory}/small.db", 2000
        fill(url, plan_count=plans, trial_count=10 * plans, study_trials=plans // 5)
        counter = multiprocessing.Value("q", 0)
        writer = multiprocessing.Process(target=write, args=(url, arguments.trials_per_second, counter), daemon=True)
        number = port()
        service = served(url, number)
        try:
            load(number, 2, arguments.connections, plans)
            writer.start()
            time.sleep(1)
            before, spent = counter.value, processor_s(service)
            report = load(number, arguments.seconds, arguments.connections, plans)
            spent = processor_s(service) - spent
            written = (counter.value - before) / arguments.seconds
        finally:
            service.terminate()
            service.wait()
            if writer.is_alive():
                writer.kill()
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", report)[1])
    spelled, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", report).groups()
    p99_ms = float(spelled) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    print(report)
    print(
        f"{rate:.0f} lookups/s at {arguments.connections} connections, p99 {p99_ms:.1f} ms, "
        f"{written:.0f} trials/s written"
    )
    print(f"answers that were no plan: {refused[1] if refused else 0}")
    lookups = int(re.search(r"(\d+) requests in", report)[1])
    print(f"processor time of the service: {spent / lookups * 1e3:.2f} ms a lookup")
    met = rate >= RATE and p99_ms <= P99_MS and refused is None
    print(f"targets {RATE}/s and {P99_MS:.0f} ms: {'met' if met else 'NOT met'}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
