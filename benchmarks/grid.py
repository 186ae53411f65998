"""Searches every cell of the grid from cold and again from warm, and writes one table.

    python benchmarks/grid.py [--cell TEXT] [--again] [--write FILE]

A cell starts from an empty database, as a new user does; its second search runs on what the first left. Cells that are
in ``grid.json`` already are left out, unless ``--again``, so that a run that was stopped goes on where it was. Step
times are predictions of the model; wall times are of the machine that runs this, a compile on each of its processors.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import storage
from adapters.search import tune
from benchmarks.cells import Cell, cells
from tuner.plans.plan import Baseline, Plan
from tuner.search.outcome import Outcome
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice

RESULTS = Path(__file__).parent / "grid.json"
REFERENCE = Path(__file__).parent / "reference.json"
Figures = dict[str, Any]

HEAD = (
    "| cell | layout | placement | step, ms | compute + attention + exposed, ms | over A = layout x placement | over B "
    "| looked at / refused / compiled | cold, s | warm, s | over peak compute | of the reference's best | proved |\n"
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
)


def search(cell: Cell) -> Figures:
    """Returns what a search of a cell finds from cold, and how long it and a second one take."""
    settings = Settings(budget_s=cell.budget_s)
    with tempfile.TemporaryDirectory() as folder:
        db = f"sqlite:///{folder}/cell.db"
        walls = []
        for _ in ("cold", "warm"):
            started = time.monotonic()
            outcome = tune(spec=cell.spec, slice_name=cell.slice_name, db=db, settings=settings)
            walls.append(time.monotonic() - started)
            if len(walls) == 1:
                figures = described(outcome, db)
    return figures | {"cold_s": round(walls[0], 1), "warm_s": round(walls[1], 1)}


def described(outcome: Outcome, db: str) -> Figures:
    with storage.open_store(db) as store:
        trials = store.trials(outcome.study.id)
        refused = store.refusals(outcome.study.id)
    ended = Counter(trial.rejection.reason.value for trial in trials if trial.rejection is not None)
    figures: Figures = {
        "looked_at": len(trials),
        "refused": dict(refused),
        "rejected": dict(ended),
        "compiled": sum(trial.predicted_s is not None for trial in trials),
        "violations": sum("bound_violation_s" in trial.numbers for trial in trials),
        "proved": outcome.proved,
        "stopped": outcome.stopped,
    }
    if outcome.plan is None:
        return figures
    plan = outcome.plan.plan
    shown = ("step_s", "compute_s", "attention_s", "exposed_communication_s", "peak_compute_s")
    return figures | {
        "layout": str(plan.candidate.layout),
        "flags": dict(plan.candidate.compiler_options),
        "placement": plan.placement.description,
        **{name: round(float(plan.details[name]), 6) for name in shown},
        "memory_bytes": plan.memory_bytes,
        "baselines": {baseline.name: gains(plan, baseline) for baseline in plan.baselines},
    }


def gains(plan: Plan, baseline: Baseline) -> Figures:
    """Returns how many times faster a plan is than a baseline, and how much of it another layout and another placement
    gain; the two multiply to the whole."""
    if baseline.step_s is None or baseline.best_placement_step_s is None:
        return {"step_s": None, "reason": baseline.reason}
    return {
        "step_s": round(baseline.step_s, 6),
        "speedup": round(baseline.step_s / plan.step_s, 4),
        "placement": round(baseline.step_s / baseline.best_placement_step_s, 4),
        "layout": round(baseline.best_placement_step_s / plan.step_s, 4),
    }


def table(results: dict[str, Figures]) -> str:
    """Returns the grid as Markdown, with the geometric mean over A of each slice."""
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    rows = [row(name, results[name], reference.get(name)) for name in sorted(results)]
    return HEAD + "".join(rows) + "\n" + means(results)


def row(name: str, cell: Figures, reference: Figures | None) -> str:
    walls = [f"{cell['cold_s']:.0f}", f"{cell['warm_s']:.1f}"]
    counts = f"{cell['looked_at']} / {sum(cell['rejected'].values())} / {cell['compiled']}"
    if "step_s" not in cell:
        why = ", ".join(f"{count} {reason}" for reason, count in cell["rejected"].items())
        fields = [name, f"none fits ({why})", *[""] * 5, counts, *walls, *[""] * 3]
        return f"| {' | '.join(fields)} |\n"
    fields = [
        name,
        cell["layout"],
        cell["placement"],
        f"{cell['step_s'] * 1e3:.0f}",
        " + ".join(f"{cell[part] * 1e3:.0f}" for part in ("compute_s", "attention_s", "exposed_communication_s")),
        over(cell, "A"),
        over(cell, "B"),
        counts,
        *walls,
        f"{cell['step_s'] / cell['peak_compute_s']:.2f}",
        against(cell, reference),
        "yes" if cell["proved"] else "no",
    ]
    return f"| {' | '.join(fields)} |\n"


def against(cell: Figures, reference: Figures | None) -> str:
    if reference is None or not reference["compiled"]:
        return "-"
    ratio = cell["step_s"] / reference["rows"][0]["predicted_s"]
    return f"{ratio:.3f}{'' if reference['complete'] else ' (in part)'}"


def over(cell: Figures, name: str) -> str:
    baseline = cell["baselines"].get(name, {})
    if baseline.get("speedup") is None:
        return "does not run"
    return f"{baseline['speedup']:.2f} = {baseline['layout']:.2f} x {baseline['placement']:.2f}"


def means(results: dict[str, Figures]) -> str:
    lines = []
    for slice_name in sorted({name.split()[1] for name in results}, key=lambda name: parse_slice(name).num_devices):
        of_slice = [cell for name, cell in results.items() if name.split()[1] == slice_name]
        gained = list(speedups(of_slice))
        mean = f"{statistics.geometric_mean(gained):.3f}" if gained else "-"
        lines.append(
            f"{slice_name}: geometric mean over A {mean} in {len(gained)} of {len(of_slice)} cells where A runs"
        )
    return "\n".join(lines) + "\n"


def speedups(of: Iterable[Figures]) -> Iterable[float]:
    for cell in of:
        gained = cell.get("baselines", {}).get("A", {}).get("speedup", math.nan)
        if gained is not None and not math.isnan(gained):
            yield gained


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="", help="only cells whose name contains this")
    parser.add_argument("--again", action="store_true", help="search cells that have results too")
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file as well")
    options = parser.parse_args(arguments)

    results: dict[str, Figures] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for cell in cells():
        if options.cell not in cell.name or (cell.name in results and not options.again):
            continue
        results[cell.name] = search(cell)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        print(row(cell.name, results[cell.name], None), end="", flush=True)
    text = table({name: figures for name, figures in results.items() if options.cell in name})
    print(text)
    if options.write:
        options.write.write_text("Predictions, not measurements.\n\n" + text)


if __name__ == "__main__":
    main()
