"""`meshwright tune`: the main job."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from adapters.cli import measuring, options, render
from adapters.cli.main import EXIT_FAILED
from adapters.cli.progress import Reporter
from tuner.network.cost import Degraded
from tuner.plans.plan import Plan
from tuner.search.outcome import Outcome
from tuner.slices.names import parse_slice
from tuner.slices.shapes import note
from tuner.stores import Trial

_SHOWN = 8


@click.command()
@options.workload
@options.slice_name
@click.option("--budget", type=options.Seconds(), default="100s", show_default=True, help="Time for the whole study.")
@click.option("--trials", type=click.IntRange(min=1), help="Candidates to compile at most, baselines included.")
@click.option("--exhaustive", is_flag=True, help="Go on until the best is proved, whatever the budget.")
@click.option(
    "--sampler",
    type=click.Choice(["best-first", "tpe", "random"]),
    default="best-first",
    show_default=True,
    help="Who proposes the next candidate.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Makes the random parts repeatable.")
@options.reserve_hbm
@options.links
@measuring.options
@click.option("--jobs", type=click.IntRange(min=1), help="Compiles at once. [default: one on each processor]")
@click.option("--timeout", type=options.Seconds(), default="10min", show_default=True, help="Time for one compile.")
@options.database
@options.output_format
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
def command(
    model: str,
    shape: str,
    videos: int,
    no_guidance: bool,
    slice_name: str,
    budget: float,
    trials: int | None,
    exhaustive: bool,
    sampler: str,
    seed: int,
    reserve_hbm: int,
    links: tuple[Degraded, ...],
    jobs: int | None,
    timeout: float,
    db: str | None,
    output: str,
    quiet: bool,
    **measured: Any,
) -> None:
    """Find the fastest layout and placement of MODEL on a slice, and store the plan.

    MODEL is a preset (see `meshwright models`) or package.module:attribute of your own workload. The search goes on
    from where an earlier one of the same study stopped.
    """
    from adapters.search import tune
    from tuner.ports import WorkloadSpec
    from tuner.search.settings import SamplerName, Settings

    settings = Settings(
        budget_s=None if exhaustive else budget,
        max_trials=trials,
        patience=None if exhaustive else Settings().patience,
        slack=None if exhaustive else Settings().slack,
        seed=seed,
        sampler=SamplerName(sampler),
        constraints=options.constraints(reserve_hbm, links),
    )
    remark = note(parse_slice(slice_name))
    if remark and not quiet:
        click.echo(f"note: {remark}", err=True)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.path.insert(0, os.getcwd())  # a user's own package.module:attribute is looked for where the user stands
    reporter = Reporter(quiet=quiet or output == "json")
    with reporter:
        outcome = tune(
            spec=WorkloadSpec(model=model, parameters=options.parameters(shape, videos, no_guidance)),
            slice_name=slice_name,
            db=db,
            settings=settings,
            listener=reporter,
            jobs=jobs,
            timeout_s=timeout,
            measurement=measuring.measurement(timeout_s=timeout, **measured),
            told=lambda line: click.echo(f"note: {line}", err=True),
        )
    if output == "json":
        render.document(_document(outcome))
    else:
        _report(outcome)
    if outcome.interrupted:
        sys.exit(130)
    if outcome.plan is None:
        sys.exit(EXIT_FAILED)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _report(outcome: Outcome) -> None:
    if not outcome.trials:
        click.echo("No layout runs. The rejected ones that came nearest:", err=True)
        for trial in outcome.rejected[:5]:
            assert trial.rejection is not None
            click.echo(f"  {trial.candidate.layout}: {trial.rejection.detail}", err=True)
        click.echo("Try a larger slice, or a smaller --reserve-hbm.", err=True)
        return
    click.echo(_table(outcome))
    for name, reason in outcome.missing.items():
        click.echo(f"Baseline {name} does not run: {reason}")
    proof = "proved best of its space in the model" if outcome.proved else "not proved best"
    timed = "" if outcome.measured else " Step times are predictions; no device was timed."
    click.echo(f"\nStopped: {outcome.stopped} ({proof}).{timed}")
    if outcome.measured is not None:
        click.echo("\n" + measuring.table(outcome.measured))
    if outcome.plan is not None:
        stored = f"plan {outcome.plan.id}, version {outcome.plan.version}"
        click.echo(
            f"Stored as {stored}: {outcome.plan.note}." if outcome.promoted else f"The active plan stays {stored}."
        )
        click.echo(f"Look it up: {_lookup_command(outcome.plan.plan)}")


def _lookup_command(plan: Plan) -> str:
    workload = plan.workload
    shape = f" --shape {workload.shape}" if workload.shape else ""
    variant = {"no-guidance": " --no-guidance"}
    options = "".join(
        variant.get(part) or f" --{part.replace('=', ' ')}" for part in workload.variant.split(",") if part
    )
    reserve = plan.constraints.reserve_hbm_bytes
    kept = f" --reserve-hbm {reserve}B" if reserve else ""
    links = "".join(f" --link {link}" for link in plan.constraints.links)
    return f"meshwright lookup {workload.model}{shape} --slice {plan.slice.name}{options}{kept}{links}"


def _table(outcome: Outcome) -> str:
    columns = [
        ("trial", ">"),
        ("mesh", "<"),
        ("step ms", ">"),
        ("compute", ">"),
        ("attention", ">"),
        ("exposed", ">"),
        ("GiB", ">"),
        ("vs A", ">"),
        ("vs B", ">"),
        ("evidence", "<"),
    ]
    shown = list(outcome.trials[:_SHOWN])
    shown += [trial for trial in outcome.baselines.values() if trial not in shown]
    heading, *rows = render.table(columns, [_row(outcome, trial) for trial in shown]).splitlines()
    # Options and placement need the width of a line each.
    indent = " " * 7
    return "\n".join(
        [heading, *(f"{row}\n{indent}{_choices(t)}\n{indent}{_where(t)}" for row, t in zip(rows, shown, strict=True))]
    )


def _row(outcome: Outcome, trial: Trial) -> list[str]:
    numbers = trial.numbers
    mesh = " ".join(f"{name}={size}" for name, size in trial.candidate.layout.axes if size > 1) or "one device"
    return [
        str(trial.number),
        mesh + (f" (baseline {trial.baseline})" if trial.baseline else ""),
        render.ms(trial.predicted_s),
        render.ms(numbers.get("compute_s")),
        render.ms(numbers.get("attention_s")),
        render.ms(numbers.get("exposed_s")),
        render.gib(numbers.get("memory_bytes")),
        render.times(_against(outcome, "A", trial)),
        render.times(_against(outcome, "B", trial)),
        "predicted",
    ]


def _choices(trial: Trial) -> str:
    chosen = (*trial.candidate.layout.options, *trial.candidate.compiler_options)
    return ", ".join(f"{name}={value}" for name, value in chosen) or "default options"


def _where(trial: Trial) -> str:
    return "" if trial.placement is None else trial.placement.description


def _against(outcome: Outcome, name: str, trial: Trial) -> float | None:
    baseline = outcome.baselines.get(name)
    default_s = None if baseline is None else baseline.numbers.get("default_step_s")
    return None if default_s is None or trial.predicted_s is None else default_s / trial.predicted_s


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "study": outcome.study.key.name,
        "evidence": "predicted" if outcome.measured is None else "measured",
        "stopped": outcome.stopped,
        "proved": outcome.proved,
        "interrupted": outcome.interrupted,
        "promoted": outcome.promoted,
        "plan_id": None if outcome.plan is None else outcome.plan.id,
        "plan": None if outcome.plan is None else outcome.plan.plan.to_json(),
        "trials": [
            {
                "number": trial.number,
                "candidate": trial.candidate.to_json(),
                "baseline": trial.baseline,
                "predicted_s": trial.predicted_s,
                "numbers": dict(trial.numbers),
            }
            for trial in outcome.trials
        ],
        "missing_baselines": dict(outcome.missing),
        "measured": None if outcome.measured is None else measuring.document(outcome.measured),
    }
