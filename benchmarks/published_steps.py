"""Predicted against published step times of whole models.

    python benchmarks/published_steps.py             # compares the predictions that are kept in this repository
    python benchmarks/published_steps.py --predict   # compiles each row's layout with our step and writes them anew

A prediction is made from the row's layout, slice and shape alone: kernel blocks are the fastest of the table, compiler
flags the ones that every search starts with, the placement the best that the ranking finds, and no constant is fitted
to a row. Predictions are committed before they are compared, so that the history tells which came first.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.calibration.attention import attention_seconds
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.ranking import rank_with
from tuner.plans.toolchain import installed_toolchain
from tuner.ports import Compiled, WorkloadSpec
from tuner.program.program import CollectiveKind, Compute, Program
from tuner.slices.generations import Generation
from tuner.slices.names import parse_slice
from tuner.timeline.ranker import Ranker

PREDICTIONS = Path(__file__).with_name("predictions.json")
PUBLISHED = Path(__file__).parents[1] / "tests/assets/published/steps.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a published row was laid out, in our words."""

    row: str
    model: str
    shape: str
    slice_name: str
    axes: dict[str, int]
    options: dict[str, str] = field(default_factory=dict)


RUNS = (
    # "dp2 x sp4, ulysses"; the source keeps the weights split over the second axis.
    Run(
        row="wan14b-720p81-v6e8-torchax",
        model="wan2.1-t2v-14b",
        shape="1280x720x81",
        slice_name="v6e-2x4",
        axes={"cfg": 2, "ulysses": 4},
        options={"weights": "ulysses"},
    ),
    # "data 2 x context 4, flash attention"; MaxDiffusion splits weights over the context axis. An upper bound.
    Run(
        row="wan21-720p81-v7x8-maxdiffusion",
        model="wan2.1-t2v-14b",
        shape="1280x720x81",
        slice_name="v7x-2x2x1",
        axes={"cfg": 2, "context": 4},
        options={"weights": "context"},
    ),
)


def predict(run: Run) -> dict[str, Any]:
    """Compiles a row's layout and returns the prediction with what it stands on. Exits if it does not compile."""
    from adapters.jax.pool import CompilePool
    from adapters.models.registry import resolve

    spec = WorkloadSpec(model=run.model, parameters={"shape": run.shape})
    workload, slice_ = resolve(spec), parse_slice(run.slice_name)
    axes = dict.fromkeys((dimension.name for dimension in workload.space.dimensions), 1) | run.axes
    layout = Layout.of(axes, workload.space.defaults() | run.options)
    layout = workload.tuned(layout, slice_)[0]
    flags = workload.space.initial_flags()
    with CompilePool() as pool:
        outcome = pool.compile(spec, slice_, Candidate(layout=layout, compiler_options=flags))
    if not isinstance(outcome, Compiled):
        sys.exit(f"{run.row}: {outcome}")
    ranker = Ranker(outcome.program, slice_, layout, calibration(slice_.generation_name))
    found = ranker.predict(rank_with(ranker).best[0].placement)
    exchanged = sum(each.exposed_s for each in found.collectives if each.kind is CollectiveKind.ALL_TO_ALL)
    return {
        "row": run.row,
        "layout": str(layout),
        "flags": dict(flags),
        "toolchain": str(installed_toolchain()),
        "step_s": round(found.step_s, 4),
        "self_attention_share": round(self_attention_s(outcome.program, slice_.generation) / found.step_s, 4),
        "all_to_all_share": round(exchanged / found.step_s, 4),
        "attention_s": round(found.attention_s, 4),
        "compute_s": round(found.compute_s, 4),
        "exposed_s": round(found.exposed_communication_s, 4),
    }


def self_attention_s(program: Program, generation: Generation) -> float:
    """Returns the seconds of attention kernels whose keys are as many as a video has, not as a text."""
    kernels = [(node.kernel, times) for node, times in program.walk() if isinstance(node, Compute) and node.kernel]
    longest = max(kernel.kv_len for kernel, _ in kernels)
    return sum(times * attention_seconds(kernel, generation) for kernel, times in kernels if kernel.kv_len == longest)


def compare(prediction: dict[str, Any], row: dict[str, Any]) -> str:
    step = prediction["step_s"] / row["s_per_step"] - 1
    lines = [f"{row['id']}: published {row['s_per_step']} s, predicted {prediction['step_s']} s ({step:+.1%})"]
    if row.get("use"):
        lines.append(f"  {row['use']}")
    for name, published in shares(row).items():
        predicted = prediction[f"{name}_share"]
        lines.append(f"  {name}: published {published:.1%}, predicted {predicted:.1%} of the step")
    return "\n".join([*lines, f"  {prediction['layout']}; {prediction['toolchain']}"])


def shares(row: dict[str, Any]) -> dict[str, float]:
    """Reads the shares out of a note like "self-attention 66.8% of time, all-to-all 6.7%"."""
    out = {}
    for part in row.get("note", "").split(","):
        for name in ("self-attention", "all-to-all"):
            if part.strip().startswith(name) and "%" in part:
                out[name.replace("-", "_")] = float(part.split("%")[0].split()[-1]) / 100
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help="compile and write the predictions")
    parser.add_argument("--row", action="append", help="only these rows")
    arguments = parser.parse_args()
    kept = {each["row"]: each for each in json.loads(PREDICTIONS.read_text())} if PREDICTIONS.exists() else {}
    runs = [run for run in RUNS if not arguments.row or run.row in arguments.row]
    if arguments.predict:
        for run in runs:
            kept[run.row] = predict(run)
            PREDICTIONS.write_text(json.dumps(list(kept.values()), indent=1) + "\n")
        print(f"written to {PREDICTIONS.name}; commit it, then compare")
        return
    published = {row["id"]: row for row in json.loads(PUBLISHED.read_text())["rows"]}
    for run in runs:
        print(compare(kept[run.row], published[run.row]) if run.row in kept else f"{run.row}: no prediction kept")


if __name__ == "__main__":
    main()
