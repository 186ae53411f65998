"""Compiles the reference space of the grid, and ranks it under today's model.

    python benchmarks/reference.py [--cell TEXT] [--rank-only] [--db FILE] [--jobs N]

Compiled programs are kept in an SQLite file (too large for the repository), so that a run that was stopped goes on
where it was, and a change of the model needs ``--rank-only``: nothing is compiled. The table of figures,
``reference.json``, is written after every cell. A compile takes about 25 s of one processor; the whole space takes many
hours.

Every compile audits the lower bound of its candidate against its prediction; what was found is in the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import storage
from adapters.jax.pool import CompilePool
from adapters.jax.screen.pool import ShardyScreener
from adapters.models.registry import resolve
from adapters.search import required_toolchain
from benchmarks.cells import SPACE, Cell, cells
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import enumerate_layouts
from tuner.placements.ranking import rank_with
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Screened
from tuner.rejections import Rejection
from tuner.screening.bounds import lower_bound
from tuner.screening.estimate import estimate
from tuner.screening.memory import memory_rejection
from tuner.search.cache import CachedCompiler, CachedScreener, Subject
from tuner.search.revision import model_revision
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.stores import Store
from tuner.timeline.ranker import Ranker

TABLE = Path(__file__).parent / "reference.json"
PROGRAMS = Path(__file__).parent / "reference.db"
Figures = dict[str, Any]


def fill(
    cell: Cell, store: Store, screener: ShardyScreener, pool: CompilePool, *, jobs: int, rank_only: bool
) -> Figures:
    """Returns the figures of one cell, compiling what is not in the store unless `rank_only`."""
    workload, slice_ = resolve(cell.spec), parse_slice(cell.slice_name)
    subject = Subject(
        workload=WorkloadKey.of(workload.name, workload.identity),
        source=workload.source,
        spec=cell.spec,
        slice=slice_,
        toolchain=required_toolchain(),
    )
    found = enumerate_layouts(workload.space, slice_.num_devices, workload.verdict)
    candidates = [reference_candidate(layout) for layout in found if isinstance(layout, Layout)]
    screened = [
        (candidate, outcome) for candidate, outcome, _ in CachedScreener(screener, store, subject).screen(candidates)
    ]
    rows: list[Figures] = []
    open_: list[tuple[Candidate, Screened]] = []
    for candidate, outcome in screened:
        refusal = outcome if isinstance(outcome, Rejection) else memory_rejection(outcome, slice_, reserve_bytes=0)
        if refusal is not None:
            rows.append({"layout": str(candidate.layout), "rejected": refusal.reason.value})
        elif isinstance(outcome, Screened):
            open_.append((candidate, outcome))
    model = calibration(slice_.generation_name)
    open_.sort(key=lambda pair: (lower_bound(pair[1], slice_, model).step_s, estimate(pair[1], slice_, model)))
    wanted = open_ if cell.in_full else open_[: int(SPACE["reference"]["partial"])]
    if rank_only:
        wanted = [(candidate, seen) for candidate, seen in wanted if store.compiled(subject.key(candidate)) is not None]
    compiler = CachedCompiler(pool, store, subject)

    def figures(pair: tuple[Candidate, Screened]) -> Figures:
        return ranked(*pair, compiler.compile(pair[0])[0], slice_)

    with ThreadPoolExecutor(jobs) as threads:
        rows += threads.map(figures, wanted)
    rows.sort(key=lambda row: (row.get("predicted_s", math.inf), row["layout"]))
    return {
        "toolchain": str(subject.toolchain),
        "model": model_revision(workload, model),
        "layouts": len(candidates),
        "compiled": sum("predicted_s" in row for row in rows),
        "complete": cell.in_full and len(wanted) == len(open_),
        "violations": sum(row.get("bound_s", 0.0) > row.get("predicted_s", math.inf) for row in rows),
        "rows": rows,
    }


def reference_candidate(layout: Layout) -> Candidate:
    reference = SPACE["reference"]
    return Candidate(
        layout=layout.replace_options(blocks=reference["blocks"]),
        compiler_options=tuple(sorted(reference["flags"].items())),
    )


def ranked(candidate: Candidate, screened: Screened, compiled: Compiled | Rejection, slice_: Slice) -> Figures:
    row: Figures = {"layout": str(candidate.layout)}
    if isinstance(compiled, Rejection):
        return row | {"rejected": compiled.reason.value}
    model = calibration(slice_.generation_name)
    ranking = rank_with(Ranker(compiled.program, slice_, candidate.layout, model))
    return row | {
        "predicted_s": round(ranking.best[0].step_s, 6),
        "placement": ranking.best[0].placement.description,
        "default_s": round(ranking.default.step_s, 6),
        "bound_s": round(lower_bound(screened, slice_, model).step_s, 6),
        "estimate_s": round(estimate(screened, slice_, model), 6),
        "compile_s": round(compiled.compile_s, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="", help="only cells whose name contains this")
    parser.add_argument("--rank-only", action="store_true", help="compile nothing")
    parser.add_argument("--db", type=Path, default=PROGRAMS, help="where compiled programs are kept")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)

    table: dict[str, Figures] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    with (
        storage.open_store(f"sqlite:///{options.db.resolve()}", create=True) as store,
        ShardyScreener(workers=options.jobs) as screener,
        CompilePool(workers=options.jobs) as pool,
    ):
        for cell in cells():
            if options.cell not in cell.name:
                continue
            figures = fill(cell, store, screener, pool, jobs=options.jobs, rank_only=options.rank_only)
            table[cell.name] = figures
            TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
            print(f"{cell.name}: {summary(figures)}", flush=True)


def summary(figures: Figures) -> str:
    counted = f"{figures['compiled']} of {figures['layouts']} layouts compiled, {figures['violations']} bounds violated"
    if not figures["compiled"]:
        return counted
    best = figures["rows"][0]
    return f"{counted}, best {best['predicted_s'] * 1e3:.0f} ms predicted, {best['layout']}"


if __name__ == "__main__":
    main()
