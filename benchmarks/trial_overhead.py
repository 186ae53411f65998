"""What a trial costs beside its compile, in a study that holds many trials already.

    python benchmarks/trial_overhead.py [--trials 20000] [--measured 100] [--db sqlite:///file.db]

A study of a 64-chip workload is filled with screened rejections and completed trials, in batches. Then trials go the
whole way: proposed by the sampler, opened in both books, their bound reported, started, ended with a prediction. Times
are of the wall, with the processor's beside them: on a machine that is busy with something else they differ.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import optuna

import storage
from adapters.models.registry import resolve
from tuner.layouts.layout import Candidate
from tuner.layouts.space import enumerate_layouts
from tuner.placements.families import structures
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.ledger import Ledger
from tuner.search.parameters import Parameters
from tuner.search.physical import describe
from tuner.search.pruner import BoundPruner
from tuner.search.sampler import DecidedSampler, make_adviser
from tuner.search.settings import SamplerName
from tuner.search.trials import PHYSICAL, UNNUMBERED
from tuner.slices.names import parse_slice
from tuner.stores import StudyKey, Trial, TrialState

SLICE = parse_slice("v6e-8x8")
MODEL = "wan2.1-t2v-1.3b"
COMPLETE_SHARE = 0.1


class Study:
    """A ledger on a database, and trials to fill it with."""

    def __init__(self, url, sampler):
        self.workload = resolve(WorkloadSpec(model=MODEL, parameters={"shape": "832x480x81"}))
        self.parameters = Parameters(self.workload.space)
        self.store = storage.open_store(url, create=True)
        key = StudyKey(
            workload=WorkloadKey.of(self.workload.name, self.workload.identity),
            slice=SLICE,
            toolchain=Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1"),
        )
        self.shared = storage.optuna_storage(url)
        study = optuna.create_study(
            study_name=key.name,
            storage=self.shared,
            sampler=DecidedSampler(),
            pruner=BoundPruner(),
            load_if_exists=True,
        )
        self.adviser = make_adviser(sampler, self.parameters, SLICE, seed=0)
        self.ledger = Ledger(
            self.store,
            self.store.open_study(key),
            study,
            self.shared,
            self.parameters,
            learner=None if self.adviser is None else self.adviser.learn,
        )
        self.rng = random.Random(0)
        legal = enumerate_layouts(self.workload.space, SLICE.num_devices, self.workload.verdict)
        self.layouts = [layout for layout in legal if not isinstance(layout, Rejection)]
        self.placements = {}

    def candidate(self, number):
        """A candidate that no other number has."""
        return Candidate(layout=self.layouts[number % len(self.layouts)], compiler_options=(("number", str(number)),))

    def ended(self, candidate, number=UNNUMBERED):
        """A trial that the screen rejected, or one with a prediction."""
        if self.rng.random() > COMPLETE_SHARE:
            return self.rejected(candidate, number)
        return self.predicted(candidate, number)

    def rejected(self, candidate, number=UNNUMBERED):
        """A trial that the screen rejected."""
        return Trial(
            number=number,
            candidate=candidate,
            state=TrialState.REJECTED,
            stage=Stage.SCREEN,
            rejection=Rejection(stage=Stage.SCREEN, reason=RejectReason.BOUND, detail="cannot win"),
            bound_s=self.rng.uniform(1, 2),
        )

    def predicted(self, candidate, number=UNNUMBERED):
        """A trial that was compiled and placed."""
        layout = candidate.layout
        if layout not in self.placements:
            made = next(structures(SLICE, layout))
            answers = describe(SLICE, layout, layout.axis_names, made.devices.tolist())
            self.placements[layout] = made.placement(), {q.name: value for q, value in answers.items()}
        placement, physical = self.placements[layout]
        now = datetime.now(UTC)
        return Trial(
            number=number,
            candidate=candidate,
            state=TrialState.COMPLETE,
            stage=Stage.PLACE,
            bound_s=0.5,
            predicted_s=self.rng.uniform(1, 2),
            placement=placement,
            details={PHYSICAL: physical},
            started_at=now,
            finished_at=now,
        )

    def run(self, number):
        """One trial from its proposal to its end."""
        candidate = self.candidate(number)
        if self.adviser is not None:
            proposed = self.adviser.propose(self.legal)
            self.adviser.place(proposed.layout, proposed.layout.axis_names)
            candidate = Candidate(layout=proposed.layout, compiler_options=candidate.compiler_options)
        opened = self.ledger.open(candidate)
        self.ledger.hopeless(opened, 0.5)
        trial = self.predicted(candidate, opened)
        self.ledger.start(trial)
        self.ledger.end(trial)
        assert self.ledger.best is not None

    def legal(self, candidate):
        """Whether a proposal may run."""
        return candidate.layout.devices == SLICE.num_devices and not self.workload.verdict(candidate.layout)

    def close(self):
        """Releases both connections."""
        self.store.close()
        self.shared.remove_session()
        self.shared.engine.dispose()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--measured", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--db", help="a database that is kept, filled up to --trials")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        url = options.db or f"sqlite:///{directory}/overhead.db"
        study = Study(url, SamplerName.BEST_FIRST)
        held = len(study.ledger.trials)
        started = time.perf_counter()
        for at in range(held, options.trials, options.batch):
            last = min(options.trials, at + options.batch)
            study.ledger.refuse([study.ended(study.candidate(number)) for number in range(at, last)])
        if held < options.trials:
            each = (time.perf_counter() - started) / (options.trials - held)
            print(f"screened in batches of {options.batch}: {each * 1e3:.2f} ms a trial in both books")
        study.close()
        for sampler in SamplerName:
            started = time.perf_counter()
            study = Study(url, sampler)
            opened = time.perf_counter() - started
            times, processor = [], []
            for number in range(options.measured):
                started, busy = time.perf_counter(), time.process_time()
                study.run(10**9 + len(study.ledger.trials) + number)
                times.append(time.perf_counter() - started)
                processor.append(time.process_time() - busy)
            times.sort()
            print(
                f"{sampler:10}  median {statistics.median(times) * 1e3:.1f} ms a trial, "
                f"95th percentile {times[int(0.95 * len(times))] * 1e3:.1f} ms, "
                f"processor {statistics.median(processor) * 1e3:.1f} ms, "
                f"at {len(study.ledger.trials)} trials; opened in {opened:.1f} s",
                flush=True,
            )
            study.close()


if __name__ == "__main__":
    main()
