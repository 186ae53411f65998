"""`meshwright compare`: a plan beside what it could have been."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import click
import numpy as np

import storage
from adapters.cli import chosen, options, own_choice, render
from tuner.calibration.calibration import Calibration
from tuner.calibration.records import constants
from tuner.explain.comparison import ANOTHER_PROGRAM, Where, why_not
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.placements.ranking import RankedPlacement, rank_with
from tuner.plans.plan import StoredPlan
from tuner.program.program import Program
from tuner.timeline.ranker import Ranker


@click.command()
@chosen.plan
@click.option("--placements", is_flag=True, help="Compare placements of the plan's compiled program.")
@click.option("--layout", metavar="AXIS=SIZE,...", help="Your own layout, options and flags: cfg=2,ulysses=4.")
@click.option(
    "--placement",
    "where",
    metavar="WHERE",
    help=f"Where your mesh lies: {', '.join(Where)}, or device indices in the order of the mesh. [default: best]",
)
@click.option("--workload", default="", metavar="MODULE:NAME", help="To compile a choice for a workload of your own.")
@click.option("--timeout", type=options.Seconds(), default="10min", show_default=True, help="Time for the compile.")
@options.database
@options.output_format
def command(
    placements: bool,
    layout: str | None,
    where: str | None,
    workload: str,
    timeout: float,
    db: str | None,
    output: str,
    **named: Any,
) -> None:
    """Set PLAN beside your own layout and placement, or placements of its program beside each other.

    PLAN is a plan's id, or a model with --shape and --slice. Programs come from the database; a choice of yours that is
    not there is compiled. Steps are predicted, and nothing is put into service.
    """
    if placements == (layout is not None or where is not None):
        raise click.UsageError("say what to compare: --placements, or --layout and --placement of your own")
    with storage.open_store(db) as store:
        stored = chosen.find(store, **named)
        links = named["links"] or tuple(map(Degraded.parse, stored.plan.constraints.links))
        if placements:
            program = chosen.compiled(store, stored.plan).program
            known = constants(store, stored.plan.slice.generation_name, stored.plan.toolchain)
        else:
            sys.path.insert(0, os.getcwd())  # where a workload of one's own is looked for
            comparison = own_choice.compare(
                store,
                stored,
                layout=layout,
                where=where or Where.BEST,
                links=links,
                workload=workload,
                timeout_s=timeout,
            )
    if placements:
        _show_placements(stored, program, known, links, output)
    elif output == "json":
        render.document(comparison.to_json())
    else:
        click.echo(f"{stored.plan.workload.name} on {stored.plan.slice.name} (predicted; {stored.plan.toolchain})")
        for link in links:
            click.echo(f"  link {link} of its rate")
        click.echo(own_choice.lines(comparison))


def _show_placements(
    stored: StoredPlan, program: Program, known: Calibration, links: tuple[Degraded, ...], output: str
) -> None:
    plan = stored.plan
    ranker = Ranker(program, plan.slice, plan.candidate.layout, known, links)
    ranked = rank_with(ranker, jax=plan.toolchain.jax_release, like=plan.candidate.placement)
    compared = {
        "plan": RankedPlacement(placement=plan.placement, step_s=_step_s(ranker, plan.placement)),
        "JAX's default": ranked.default,
        "row-major": ranked.row_major,
        "best": ranked.best[0],
        "worst": ranked.worst,
    }
    entries = [_entry(name, placed, ranker, ranked.default.step_s) for name, placed in compared.items()]
    if output == "json":
        render.document({"plan": stored.id, "links": [str(link) for link in links], "placements": entries})
        return
    count = f"{ranked.scored} placements looked at, {ranked.refused} of {ranked.count} structured ones do not compile"
    click.echo(f"{plan.workload.name} on {plan.slice.name}, {plan.candidate.layout} (predicted; {count})")
    for link in links:
        click.echo(f"  link {link} of its rate")
    columns = [
        ("", "<"),
        ("step ms", ">"),
        ("vs default", ">"),
        ("exposed ms", ">"),
        ("busiest link", "<"),
        ("busy ms", ">"),
        ("placement", "<"),
    ]
    click.echo(render.table(columns, [_row(entry) for entry in entries]))
    for entry in entries:
        if entry["reason"]:
            click.echo(f"{entry['name']}: {entry['reason']}")


def _step_s(ranker: Ranker, placement: Placement) -> float:
    return float(ranker.step_s(np.asarray([placement.devices]))[0])


def _entry(name: str, placed: RankedPlacement, ranker: Ranker, default_s: float) -> dict[str, Any]:
    # What cannot run has no figures, and JSON has no infinity.
    placement = placed.placement
    entry: dict[str, Any] = {
        "name": name,
        "placement": placement.to_json(ranker.slice_),
        "step_s": None,
        "speedup_over_default": None,
        "exposed_s": None,
        "busiest_link": "",
        "busiest_link_s": None,
        "reason": "",
    }
    if not math.isfinite(placed.step_s):
        return entry | {"reason": why_not(ranker, placement) or ANOTHER_PROGRAM}
    prediction = ranker.predict(placement)
    return entry | {
        "step_s": prediction.step_s,
        "speedup_over_default": default_s / prediction.step_s if math.isfinite(default_s) else None,
        "exposed_s": prediction.exposed_communication_s,
        "busiest_link": prediction.busiest_link,
        "busiest_link_s": prediction.busiest_link_s,
    }


def _row(entry: dict[str, Any]) -> list[str]:
    return [
        entry["name"],
        render.ms(entry["step_s"]),
        render.times(entry["speedup_over_default"]),
        render.ms(entry["exposed_s"]),
        entry["busiest_link"],
        render.ms(entry["busiest_link_s"]),
        entry["placement"]["description"],
    ]
