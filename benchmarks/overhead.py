"""What a trial costs around its compile, in a study that has many already.

    python -m benchmarks.overhead URL [--there 20000] [--trials 40]

The database must be new. Time in Optuna (asking, telling, its pruner), in the stub of the compiler and in the ranking
of placements is not our overhead and is counted apart.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import optuna

import storage
from benchmarks import stub_study
from storage import migrations
from tuner.layouts.layout import Candidate
from tuner.layouts.space import enumerate_layouts
from tuner.placements.placement import Placement
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, Stage
from tuner.search.funnel import Search
from tuner.search.placing import PlaceStage
from tuner.slices.names import parse_slice
from tuner.stores import Store, Trial, TrialState

_OPTUNAS = (
    (optuna.Study, ("ask", "tell", "get_trials")),
    (optuna.Trial, ("suggest_categorical", "set_user_attr", "report", "should_prune", "set_constraint")),
)


class Clock:
    """Seconds by what they went to; nested calls count once."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inside = False

    def timed(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return call(*args, **kwargs)
            started, self._inside = time.perf_counter(), True
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[what] += time.perf_counter() - started
                self._inside = False

        return run

    @contextmanager
    def watching(self) -> Iterator[None]:
        places = [("Optuna", kind, name) for kind, names in _OPTUNAS for name in names]
        places += [("placements", PlaceStage, "end"), ("compiles", stub_study.StubCompiler, "compile")]
        originals = [(kind, name, getattr(kind, name)) for _, kind, name in places]
        for what, kind, name in places:
            setattr(kind, name, self.timed(what, getattr(kind, name)))
        try:
            yield
        finally:
            for kind, name, original in originals:
                setattr(kind, name, original)


def fill(store: Store, workload: stub_study.StubWorkload, study_id: int, there: int) -> None:
    """Writes trials as a search leaves them, slower than any that follows."""
    slice_ = parse_slice(stub_study.SLICE)
    noon = datetime(2026, 1, 1, tzinfo=UTC)
    layouts = enumerate_layouts(workload.space, slice_.num_devices, workload.verdict)
    legal = [layout for layout in layouts if not isinstance(layout, Rejection)]
    trials = [
        Trial(
            number=number,
            candidate=Candidate(layout=layout),
            state=TrialState.COMPLETE,
            stage=Stage.PLACE,
            bound_s=1e-6,
            estimate_s=1e-3,
            predicted_s=1.0 + number * 1e-6,
            numbers={"compute_s": 1.0, "exposed_s": 0.0, "memory_bytes": 1e9},
            placement=Placement(devices=(0, 1, 2, 3)),
            details={"compute_s": 1.0},
            lowered_digest=f"{number:064x}",
            host="before",
            started_at=noon + timedelta(seconds=number),
            finished_at=noon + timedelta(seconds=number + 1),
        )
        for number, layout in enumerate(legal[-there:])
    ]
    for start in range(0, there, 1000):
        store.save_trials(study_id, trials[start : start + 1000])


def measure(url: str, *, there: int, trials: int) -> dict[str, float]:
    """Returns milliseconds per trial by what they went to, and the seconds of opening the study."""
    migrations.init(url)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    workload = stub_study.StubWorkload(candidates=there + trials)
    clock, found = Clock(), {}
    with storage.open_store(url) as store:
        fill(store, workload, stub_study.publish(store, candidates=there + trials), there)
        started = time.perf_counter()
        search = Search(
            workload=workload,
            spec=WorkloadSpec(model="stub", parameters={}),
            slice_=parse_slice(stub_study.SLICE),
            toolchain=stub_study.TOOLCHAIN,
            screener=stub_study.StubScreener(),
            compiler=stub_study.StubCompiler(),
            store=store,
            optuna_storage=storage.optuna_storage(url),
            settings=stub_study.EXHAUSTIVE,
        )
        with search._crew:
            search._begin()
            found["open_s"] = time.perf_counter() - started
            candidates, _ = search._screen.enumerate()
            baseline = Candidate(layout=workload.baselines(parse_slice(stub_study.SLICE))["A"])
            # What is there was screened long ago; the agenda looks for its baseline in any case.
            fresh = [each for each in candidates if each.digest not in search._ledger.trials or each == baseline]
            search._ledger.refuse(search._screen.look(fresh))
            search._agenda.fill()
            search._ledger.enqueued()  # Optuna reads the trials that are there once
            cpu = time.process_time()
            with clock.watching():
                started = time.perf_counter()
                search._compile.run()
                whole = time.perf_counter() - started
            cpu = time.process_time() - cpu
        done = len(store.trials(search._study.id, after=there - 1))
    found["trials"] = done
    found |= {f"{what} ms": seconds / done * 1e3 for what, seconds in clock.seconds.items()}
    found["ours ms"] = (whole - clock.seconds.total()) / done * 1e3
    found["CPU of all ms"] = cpu / done * 1e3
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead")
    parser.add_argument("url")
    parser.add_argument("--there", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=40)
    arguments = parser.parse_args()
    for what, value in measure(arguments.url, there=arguments.there, trials=arguments.trials).items():
        print(f"{what:14} {value:.2f}")


if __name__ == "__main__":
    main()
