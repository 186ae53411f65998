"""Placements scored per second, and the time and memory of ranking a program, by size of slice.

    python benchmarks/placements.py [--db URL --model NAME --shape SHAPE --slice NAME]

With a database, the program is the compiled one of its fastest trial. Without, the traffic is what a sharded video
transformer has: exchanges and permutes over one axis, all-reduces and all-gathers over another, and some over both. CPU
seconds of one process; every size runs in a process of its own, so that the memory shown is its own.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tuner.calibration.calibration import CALIBRATIONS
from tuner.layouts.layout import Layout
from tuner.placements.ranking import rank_with
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Loop, Program, Start
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

CASES = [
    ("v5e", (4, 4), (False, False), 20_000),
    ("v6e", (8, 8), (False, False), 4_000),
    ("v6e", (16, 16), (True, True), 1_000),
    ("v5p", (8, 8, 16), (True, True, True), 128),
    ("v5p", (16, 16, 16), (True, True, True), 16),
]


def groups(layout, *axes):
    ids = np.arange(layout.devices).reshape(layout.shape)
    chosen = [layout.axis_names.index(axis) for axis in axes]
    rest = [axis for axis in range(len(layout.shape)) if axis not in chosen]
    size = int(np.prod([layout.shape[axis] for axis in chosen]))
    return tuple(map(tuple, ids.transpose(*rest, *chosen).reshape(-1, size).tolist()))


def synthetic(slice_):
    sizes = {"cfg": 2, "ulysses": 4, "tensor": 2}
    rest = slice_.num_devices // 16
    if rest > 1:
        sizes["data"] = rest
    layout = Layout.of(sizes)
    wanted = [
        (CollectiveKind.ALL_TO_ALL, ("ulysses",), 40e6),
        (CollectiveKind.ALL_TO_ALL, ("ulysses",), 30e6),
        (CollectiveKind.ALL_REDUCE, ("tensor",), 80e6),
        (CollectiveKind.ALL_REDUCE, ("tensor",), 40e6),
        (CollectiveKind.ALL_GATHER, ("ulysses", "tensor"), 10e6),
        (CollectiveKind.ALL_GATHER, ("tensor",), 5e6),
        (CollectiveKind.REDUCE_SCATTER, ("cfg",), 8e6),
        (CollectiveKind.ALL_REDUCE, ("cfg",), 6e4),
        (CollectiveKind.COLLECTIVE_PERMUTE, ("ulysses",), 20e6),
        (CollectiveKind.ALL_REDUCE, ("cfg", "ulysses"), 4e3),
    ]
    nodes = []
    for index, (kind, axes, bytes_) in enumerate(wanted):
        members = groups(layout, *axes)
        permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
        nodes += [
            Compute(name=f"dot{index}", kind=ComputeKind.MATMUL, cycles=1_000_000),
            Collective(
                name=f"c{index}",
                kind=kind,
                operand_bytes=int(bytes_),
                result_bytes=int(bytes_) * (len(members[0]) if kind is CollectiveKind.ALL_GATHER else 1),
                groups=() if permute else members,
                pairs=tuple((g[k], g[(k + 1) % len(g)]) for g in members for k in range(len(g))) if permute else (),
            ),
        ]
    return Program(devices=layout.devices, schedule=(Loop(name="layers", trips=40, body=tuple(nodes)),)), layout


def measure(number):
    generation, shape, wrap, count = CASES[number]
    slice_ = Slice(generation_name=generation, shape=shape, wrap=wrap)
    program, layout = synthetic(slice_)
    ranker = Ranker(program, slice_, layout, CALIBRATIONS[generation])
    rng = np.random.default_rng(0)
    placements = rng.permuted(np.tile(np.arange(slice_.num_devices), (count, 1)), axis=1)
    rates = []
    for _ in range(2):
        start = time.process_time()
        ranker.step_s(placements)
        rates.append(count / (time.process_time() - start))
    ranked, taken = "", 0.0
    if slice_.num_devices <= 256:
        start = time.process_time()
        found = rank_with(ranker, starts=4 if slice_.num_devices <= 64 else 0)
        taken = time.process_time() - start
        ranked = f"{found.count} structured, {found.scored} scored in {taken:.1f} s"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{slice_.name:15} {slice_.num_chips:5} chips: {rates[0]:8.0f} random placements/s, "
        f"{rates[1]:8.0f} seen before; {memory:5.0f} MiB; {ranked}",
        flush=True,
    )
    return {
        "slice": slice_.name,
        "fresh_per_s": rates[0],
        "seen_per_s": rates[1],
        "memory_mib": memory,
        "rank_s": taken,
    }


def stored(options):
    """Returns the slice, layout and program of the fastest trial in a database whose program is there."""
    import storage
    from tuner.ports import Compiled
    from tuner.stores import ContentKey, TrialState

    with storage.open_store(options.db) as store:
        for study in store.studies():
            key = study.key
            found = (key.workload.model, key.workload.shape, key.slice.name)
            if found != (options.model, options.shape, options.slice):
                continue
            trials = store.trials(study.id, state=TrialState.COMPLETE)
            for trial in sorted(trials, key=lambda trial: trial.predicted_s):
                content = ContentKey(
                    workload_digest=key.workload.digest,
                    slice_name=key.slice.name,
                    wrap=key.slice.wrap,
                    toolchain_digest=key.toolchain.digest,
                    candidate_digest=trial.candidate.digest,
                )
                outcome = store.compiled_program(trial.lowered_digest, content)
                if isinstance(outcome, Compiled):
                    return key.slice, trial.candidate.layout, outcome.program
    raise SystemExit(f"no compiled trial of {options.model}@{options.shape} on {options.slice} in {options.db}")


def widened(program, layout, times):
    """Returns the program of so many replicas side by side, each with the collectives of its own."""
    devices = program.devices

    def everywhere(rows):
        return tuple(tuple(k + start * devices for k in row) for start in range(times) for row in rows)

    def wider(node):
        match node:
            case Loop():
                return replace(node, body=tuple(map(wider, node.body)))
            case Start():
                return replace(node, collective=wider(node.collective))
            case Collective():
                return replace(node, groups=everywhere(node.groups), pairs=everywhere(node.pairs))
        return node

    out = replace(program, devices=times * devices, schedule=tuple(map(wider, program.schedule)))
    return out, Layout.of({"replica": times, **dict(layout.axes)})


def compiled(options):
    """Scores random placements of a compiled program, and of its replicas on 256 chips of v6e."""
    slice_, layout, program = stored(options)
    print(f"{options.model}@{options.shape} {layout}: {sum(1 for _ in program.walk())} operations", flush=True)
    pod = Slice(generation_name="v6e", shape=(16, 16), wrap=(True, True))
    cases = [(slice_, layout, program, 40_000)]
    if pod.num_devices % slice_.num_devices == 0:
        wide, wide_layout = widened(program, layout, pod.num_devices // slice_.num_devices)
        cases.append((pod, wide_layout, wide, 1_000))
    for where, over, what, count in cases:
        ranker = Ranker(what, where, over, CALIBRATIONS[where.generation_name])
        rng = np.random.default_rng(0)
        placements = rng.permuted(np.tile(np.arange(where.num_devices), (count, 1)), axis=1)
        rates = []
        for _ in range(2):
            start = time.process_time()
            ranker.step_s(placements)
            rates.append(count / (time.process_time() - start))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{where.name:15} {where.num_chips:5} chips, {len(ranker.patterns)} patterns: {rates[0]:8.0f} random "
            f"placements/s, {rates[1]:8.0f} seen before; {memory:5.0f} MiB",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", help="database with a compiled trial")
    parser.add_argument("--model", default="wan2.1-t2v-14b")
    parser.add_argument("--shape", default="832x480x81")
    parser.add_argument("--slice", default="v5e-4x4")
    options = parser.parse_args()
    if options.db:
        compiled(options)
        return
    context = multiprocessing.get_context("spawn")
    for number in range(len(CASES)):
        process = context.Process(target=measure, args=(number,))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
