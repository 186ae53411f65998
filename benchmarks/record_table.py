"""Compiles every candidate of a workload on a slice and keeps what the screen and the compiler said of each.

    python benchmarks/record_table.py benchmarks.stack:workload v6e-8x8 benchmarks/tables/stack-v6e-8x8.jsonl.xz

What is recorded are programs, not step times, so that another model of the network ranks them without a compile. A run
that was stopped goes on where it stood (``.part`` beside the table). `benchmarks/samplers.py` replays the table.
"""

import argparse
import json
import lzma
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from adapters.jax.pool import CompilePool
from adapters.jax.screen.pool import ShardyScreener
from adapters.models.registry import resolve
from storage.documents import compiled_to_json, screened_to_json
from tuner.layouts.layout import Candidate
from tuner.layouts.space import enumerate_layouts, passed_flags
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.names import parse_slice


def candidates(workload, slice_):
    """Every legal layout with every set of compiler flags that matters to it."""
    space = workload.space
    for layout in enumerate_layouts(space, slice_.num_devices, workload.verdict):
        if isinstance(layout, Rejection):
            continue
        values = [choice.values if choice.matters(layout) else choice.values[:1] for choice in space.compiler]
        for chosen in product(*values):
            flags = dict(zip([choice.name for choice in space.compiler], chosen, strict=True))
            yield Candidate(layout=layout, compiler_options=passed_flags(flags))


def line(candidate, screened, compiled):
    """A line of the table."""
    return {
        "candidate": candidate.to_json(),
        "screened": rejected(screened) if isinstance(screened, Rejection) else screened_to_json(screened),
        "compiled": rejected(compiled) if isinstance(compiled, Rejection) else compiled_to_json(compiled),
    }


def rejected(rejection):
    """A rejection as JSON."""
    return {"stage": rejection.stage, "reason": rejection.reason, "detail": rejection.detail}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("slice")
    parser.add_argument("table", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    spec, slice_ = WorkloadSpec(model=options.workload), parse_slice(options.slice)
    part = options.table.with_suffix(".part")
    options.table.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    done = {Candidate.from_json(json.loads(text)["candidate"]).digest for text in part.read_text().splitlines()}
    every = list(candidates(resolve(spec), slice_))
    left = [candidate for candidate in every if candidate.digest not in done]
    print(f"{len(every)} candidates, {len(left)} to compile", flush=True)
    with ShardyScreener(workers=1) as screener:
        screened = {candidate.digest: outcome for candidate, outcome in screener.screen(spec, slice_, left)}
    with (
        CompilePool(workers=options.jobs) as compiler,
        ThreadPoolExecutor(options.jobs) as threads,
        part.open("a") as out,
    ):
        outcomes = threads.map(lambda candidate: compiler.compile(spec, slice_, candidate), left)
        for candidate, outcome in zip(left, outcomes, strict=True):
            out.write(json.dumps(line(candidate, screened[candidate.digest], outcome), separators=(",", ":")) + "\n")
            out.flush()
    options.table.write_bytes(lzma.compress(part.read_bytes(), preset=9))
    print(f"{options.table}: {options.table.stat().st_size} bytes")


if __name__ == "__main__":
    main()
