"""Compiles that each sampler needs to come near the best of a recorded table, over many seeds.

    python benchmarks/samplers.py [--seeds 20] [--within 0.03] [--samplers best-first tpe random] [--bare]
    python benchmarks/samplers.py --live v5e-8x8 [--trials 20]

The whole funnel runs on the programs that `benchmarks/record_table.py` kept: screen, bound, pruner, Optuna, placements.
Only the compiler is replaced, by the table. Where near is comes from ranking every program of the table under all of
its placements, once (``.figures.json`` beside the table; delete it when the model changes). ``--bare`` adds random
search that no pruner helps. ``--live`` asks the real screen and compiler instead, once for each sampler, which may
compile so many candidates; near is near the best that any of them found.
"""

import argparse
import json
import lzma
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import optuna
from scipy.stats import mannwhitneyu

import storage
from adapters.models.registry import resolve
from storage.documents import compiled_from_json, screened_from_json
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.placements.ranking import rank
from tuner.plans.toolchain import Toolchain
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.events import TrialEnded
from tuner.search.funnel import Search
from tuner.search.settings import SamplerName, Settings
from tuner.slices.names import parse_slice

TABLE = Path(__file__).parent / "tables" / "stack-v6e-8x8.jsonl.xz"
WORKLOAD = "benchmarks.stack:workload"
TOOLCHAIN = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")


class Table:
    """Screens and compiles by looking them up."""

    def __init__(self, path):
        self.screened, self.compiled, self.candidates = {}, {}, {}
        for text in lzma.decompress(path.read_bytes()).decode().splitlines():
            line = json.loads(text)
            candidate = Candidate.from_json(line["candidate"])
            self.candidates[candidate.digest] = candidate
            for kind, read in (("screened", screened_from_json), ("compiled", compiled_from_json)):
                document = line[kind]
                rejected = "reason" in document
                getattr(self, kind)[candidate.digest] = (
                    Rejection(
                        stage=Stage(document["stage"]),
                        reason=RejectReason(document["reason"]),
                        detail=document["detail"],
                    )
                    if rejected
                    else read(document)
                )

    def screen(self, workload, slice_, candidates):
        """As `tuner.ports.Screener`."""
        for candidate in candidates:
            yield candidate, self.screened[self._plain(candidate)]

    def compile(self, workload, slice_, candidate, *, known=None):
        """As `tuner.ports.Compiler`."""
        outcome = self.compiled[self._plain(candidate)]
        if known is not None and not isinstance(outcome, Rejection) and known(outcome.lowered_digest):
            return None
        return outcome

    def _plain(self, candidate):
        return Candidate(layout=candidate.layout, compiler_options=candidate.compiler_options).digest


def figures(table, path, slice_):
    """Best predicted step of every program by the candidate's digest."""
    kept = path.with_suffix("").with_suffix(".figures.json")
    if kept.exists():
        return json.loads(kept.read_text())
    steps, programs = {}, {}
    for digest, outcome in table.compiled.items():
        if isinstance(outcome, Rejection):
            continue
        if outcome.lowered_digest not in programs:
            layout = table.candidates[digest].layout
            ranked = rank(outcome.program, slice_, layout, calibration(slice_.generation_name))
            programs[outcome.lowered_digest] = ranked.best[0].step_s
        steps[digest] = programs[outcome.lowered_digest]
    kept.write_text(json.dumps(steps, indent=0, sort_keys=True) + "\n")
    return steps


def compiles(screener, compiler, workload, slice_, near_s, *, sampler, seed, pruner=None, most=None):
    """Step times in order, each with how many candidates were compiled by then, until one is within `near_s`."""
    asked, steps = set(), []

    def listen(event):
        if isinstance(event, TrialEnded):
            asked.add(event.trial.candidate.digest)
            steps.append((len(asked), event.trial.predicted_s or math.inf))
            if steps[-1][1] <= near_s:
                raise KeyboardInterrupt

    with storage.open_store("memory://") as store:
        Search(
            workload=workload,
            spec=WorkloadSpec(model=WORKLOAD),
            slice_=slice_,
            toolchain=TOOLCHAIN,
            screener=screener,
            compiler=compiler,
            store=store,
            optuna_storage=optuna.storages.InMemoryStorage(),
            # Nothing but the sampler decides what comes next, and nothing ends it early.
            settings=Settings(
                budget_s=None,
                max_trials=most,
                patience=None,
                slack=None,
                tune_after=10**9,
                sampler=sampler,
                seed=seed,
            ),
            pruner=pruner,
            listener=listen,
        ).run()
    return steps


def reached(steps, near_s):
    """Compiles until a step time was within `near_s`; None if none was."""
    return next((count for count, step_s in steps if step_s <= near_s), None)


class Remembered:
    """A compiler that compiles a candidate once, whoever asks."""

    def __init__(self, compiler):
        self.compiler, self.outcomes = compiler, {}

    def compile(self, workload, slice_, candidate, *, known=None):
        """As `tuner.ports.Compiler`."""
        if candidate.digest not in self.outcomes:
            self.outcomes[candidate.digest] = self.compiler.compile(workload, slice_, candidate)
        return self.outcomes[candidate.digest]


def live(slice_, workload, samplers, *, most, within):
    """Each sampler once, with the real screen and compiler."""
    from adapters.jax.pool import CompilePool
    from adapters.jax.screen.pool import ShardyScreener

    runs = {}
    with ShardyScreener(workers=1) as screener, CompilePool(workers=1) as pool:
        compiler = Remembered(pool)
        for name in samplers:
            started = time.perf_counter()
            runs[name] = compiles(
                screener, compiler, workload, slice_, 0.0, sampler=SamplerName(name), seed=0, most=most
            )
            print(f"{name}: {runs[name][-1][0]} compiles in {time.perf_counter() - started:.0f} s", flush=True)
    best_s = min(step_s for steps in runs.values() for _, step_s in steps)
    for name, steps in runs.items():
        own_s = min(step_s for _, step_s in steps)
        count = reached(steps, best_s * (1 + within))
        print(
            f"{name:10}  best {own_s * 1e3:.4f} ms, {own_s / best_s - 1:.1%} above the best of all; "
            f"within {within:.0%} of that after {count or f'more than {most}'} compiles"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--slice", default="v6e-8x8")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--samplers", nargs="+", default=["best-first", "tpe", "random"])
    parser.add_argument("--most", type=int, default=150, help="compiles after which a run ends and counts as so many")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--live", metavar="SLICE")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    slice_, workload = parse_slice(options.live or options.slice), resolve(WorkloadSpec(model=WORKLOAD))
    if options.live:
        live(slice_, workload, options.samplers, most=options.trials, within=options.within)
        return
    table = Table(options.table)
    steps = figures(table, options.table, slice_)
    best_s = min(steps.values())
    near_s = best_s * (1 + options.within)
    near = sum(step_s <= near_s for step_s in steps.values())
    programs = {o.lowered_digest for o in table.compiled.values() if not isinstance(o, Rejection)}
    print(
        f"{len(table.compiled)} candidates, {len(programs)} programs, best {best_s * 1e3:.4f} ms, "
        f"{near} candidates within {options.within:.0%} of it"
    )
    counts = {}
    runs = [(name, SamplerName(name), None) for name in options.samplers]
    if options.bare:
        runs.append(("random, no pruner", SamplerName.RANDOM, optuna.pruners.NopPruner()))
    for name, sampler, pruner in runs:
        counts[name] = []
        started = time.perf_counter()
        # Best-first has no randomness: one run stands for all.
        for seed in range(1 if sampler is SamplerName.BEST_FIRST else options.seeds):
            steps = compiles(
                table, table, workload, slice_, near_s, sampler=sampler, seed=seed, pruner=pruner, most=options.most
            )
            counts[name].append(reached(steps, near_s) or options.most)
        if sampler is SamplerName.BEST_FIRST:
            counts[name] *= options.seeds
        low, middle, high = quartiles(counts[name])
        print(
            f"{name:18} median {middle:5.1f} compiles (quartiles {low:.1f} to {high:.1f}, most {max(counts[name])}), "
            f"{time.perf_counter() - started:.0f} s  {sorted(counts[name])}",
            flush=True,
        )
    for fewer, more in (("tpe", "random"), ("tpe", "random, no pruner"), ("best-first", "tpe")):
        if fewer in counts and more in counts:
            test = mannwhitneyu(counts[fewer], counts[more], alternative="less")
            ratio = statistics.median(counts[fewer]) / statistics.median(counts[more])
            print(f"{fewer} / {more}: {ratio:.2f} of the median compiles, p = {test.pvalue:.1e}")


def quartiles(values):
    """Lower quartile, median and upper quartile."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3


if __name__ == "__main__":
    main()
