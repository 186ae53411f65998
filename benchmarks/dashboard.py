"""Figures of the dashboard on a large database: first bytes, bytes, and many readers while a study writes.

    python benchmarks/big_store.py sqlite:///big.db
    python benchmarks/dashboard.py sqlite:///big.db [--readers 50] [--seconds 30]

The service runs as a process of its own. First every page is asked for one after another: how long until its first byte
comes, the first time and then again, and how large it is. Then many readers walk the pages at once while a writer adds
trials to the study that they look at; readers and writer share the machine with the service, and say so in the figures.
"""

import argparse
import http.client
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import delete, func, select

import storage
from storage.schema import StudyRow, TrialRow
from storage.views.plans import list_plans
from storage.views.view import database_of
from tuner.rejections import Stage
from tuner.stores import TrialState

ROOT = Path(__file__).parents[1]
BUDGET_MS, BUDGET_BYTES = 300.0, 200_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with storage.open_store(given.url) as store:
        pages = asked_for(store)
    with Service(given.url) as service:
        service.get("/healthz")
        one_by_one(service, pages, given.repeats)
        together(service, pages, given.url, given.readers, given.seconds)


def asked_for(store):
    """The pages by name; the study is the one with the most trials."""
    with database_of(store).read() as session:
        total = session.scalar(select(func.count()).select_from(TrialRow))
        largest = select(TrialRow.study_id, func.count()).group_by(TrialRow.study_id).order_by(func.count().desc())
        study, trials = session.execute(largest.limit(1)).one()
        best = session.scalar(
            select(TrialRow.number)
            .where(TrialRow.study_id == study, TrialRow.predicted_s.is_not(None))
            .order_by(TrialRow.predicted_s)
            .limit(1)
        )
        studies = session.scalar(select(func.count()).select_from(StudyRow))
        plan = list_plans(database_of(store), limit=1).rows[0].id
    print(f"{total:,} trials in {studies:,} studies, {trials:,} in the study shown")
    of_study = f"/studies/{study}"
    return {
        "overview": "/",
        "overview, by speed-up": "/?sort=-speedup",
        "overview, text": "/?text=14b",
        "studies": "/studies",
        "study": of_study,
        "study, in the middle": f"{of_study}?sort=number&after={trials // 2}",
        "study, by memory": f"{of_study}?sort=-memory",
        "study, filtered": f"{of_study}?state=rejected&reason=hbm&sort=-bound",
        "study, text": f"{of_study}?text=blocks",
        "study, live part": f"{of_study}/live",
        "study, table alone": f"{of_study}/trials?sort=finished",
        "study, JSON": f"{of_study}.json",
        "study, CSV": f"{of_study}/trials.csv",
        "trial": f"{of_study}/trials/{best}",
        "placement": f"{of_study}/trials/{best}/placement",
        "plan": f"/plans/{plan}",
        "compare": f"/compare?a=trial-{study}-{best}&b=trial-{study}-0",
    }


class Service:
    """The service as a process, on a port of its own."""

    def __init__(self, url):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = open(os.devnull, "w")  # noqa: SIM115
        command = ["-c", "from adapters.cli.main import main; main()", "serve", "--db", url, "--port", str(self.port)]
        self._process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=self._log, stderr=self._log)

    def __enter__(self):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the service does not answer")

    def __exit__(self, *error):
        self._process.terminate()
        self._process.wait()
        self._log.close()

    @property
    def memory_mb(self):
        """Resident memory of the service."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def get(self, path, connection=None):
        """Returns (milliseconds to the first byte, bytes, status)."""
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        started = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        first = (time.perf_counter() - started) * 1e3
        return first, len(answer.read()), answer.status


def one_by_one(service, pages, repeats):
    print(f"\n{'page':<24}{'first ms':>10}{'again ms':>10}{'worst ms':>10}{'kB':>8}")
    failed = []
    for name, path in pages.items():
        first, size, status = service.get(path)
        again = [service.get(path)[0] for _ in range(repeats)]
        print(f"{name:<24}{first:>10.0f}{statistics.median(again):>10.0f}{max(again):>10.0f}{size / 1e3:>8.0f}")
        large = size > BUDGET_BYTES and not path.endswith(".csv")
        if status != 200 or max(first, *again) > BUDGET_MS or large:
            failed.append(f"{name} ({status})")
    limits = f"{BUDGET_MS:.0f} ms and {BUDGET_BYTES / 1e3:.0f} kB"
    print(f"within {limits}: {'all' if not failed else 'all but ' + ', '.join(failed)}")


def together(service, pages, url, readers, seconds):
    walked = [path for path in pages.values() if not path.endswith(".csv")]
    stop, taken, errors, written = threading.Event(), [], [], []
    lock = threading.Lock()

    def read(seed):
        order = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        while not stop.is_set():
            try:
                first, _, status = service.get(order.choice(walked), connection)
            except (OSError, http.client.HTTPException) as error:
                errors.append(repr(error))
                connection.close()
                continue
            with lock:
                taken.append(first)
                if status not in (200, 204):
                    errors.append(str(status))

    def write():
        study = int(pages["study"].rpartition("/")[2])
        with storage.open_store(url) as store:
            template = store.trials(study, limit=1)[0]
            number = 10_000_000
            while not stop.is_set():
                number += 1
                started = time.perf_counter()
                trial = replace(
                    template,
                    number=number,
                    state=TrialState.COMPLETE,
                    stage=Stage.PLACE,
                    predicted_s=1.0 + random.random(),
                    started_at=datetime.now(UTC),
                    finished_at=datetime.now(UTC),
                    baseline="",
                )
                store.save_trials(study, [trial])
                written.append((time.perf_counter() - started) * 1e3)
                stop.wait(0.1)
        forget(url, study)

    before = service.memory_mb
    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(readers)]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    memory = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1)
        memory.append(service.memory_mb)
    stop.set()
    for thread in threads:
        thread.join()
    taken.sort()
    third = len(memory) // 3
    print(f"\n{readers} readers for {seconds:.0f} s while a study writes ({len(written)} trials)")
    print(f"  pages read     {len(taken)} ({len(taken) / seconds:.0f} a second), {len(errors)} errors {errors[:3]}")
    print(f"  first byte     median {taken[len(taken) // 2]:.0f} ms, 95 % {taken[int(len(taken) * 0.95)]:.0f} ms")
    print(f"  a write took   median {statistics.median(written):.0f} ms, at most {max(written):.0f} ms")
    print(
        f"  memory         {before:.0f} MB before; mean of each third "
        + ", ".join(f"{statistics.mean(memory[at * third : (at + 1) * third]):.0f}" for at in range(3))
        + f" MB; {service.memory_mb:.0f} MB after"
    )


def forget(url, study):
    """Takes the trials that the writer wrote out again."""
    with storage.open_store(url) as store, database_of(store).write() as session:
        session.execute(delete(TrialRow).where(TrialRow.study_id == study, TrialRow.number >= 10_000_000))


if __name__ == "__main__":
    main()
