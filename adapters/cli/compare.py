"""`meshwright compare`: a plan beside what it could have been."""

from __future__ import annotations

import math
from typing import Any

import click
import numpy as np

import storage
from adapters.cli import chosen, options, render
from tuner.calibration.records import constants
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.placements.ranking import RankedPlacement, rank_with
from tuner.timeline.ranker import Ranker


@click.command()
@chosen.plan
@click.option("--placements", is_flag=True, required=True, help="Compare placements of the plan's compiled program.")
@options.database
@options.output_format
def command(placements: bool, db: str | None, output: str, **named: Any) -> None:
    """Compare JAX's default, row-major, the best and the worst placement of PLAN's program.

    PLAN is a plan's id, or a model with --shape and --slice. The program comes from the database; nothing is compiled.
    """
    with storage.open_store(db) as store:
        stored = chosen.find(store, **named)
        program = chosen.compiled(store, stored.plan).program
        plan = stored.plan
        known = constants(store, plan.slice.generation_name, plan.toolchain)
    links = named["links"] or tuple(map(Degraded.parse, plan.constraints.links))
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
        return entry | {"reason": _reason(ranker, placement)}
    prediction = ranker.predict(placement)
    return entry | {
        "step_s": prediction.step_s,
        "speedup_over_default": default_s / prediction.step_s if math.isfinite(default_s) else None,
        "exposed_s": prediction.exposed_communication_s,
        "busiest_link": prediction.busiest_link,
        "busiest_link_s": prediction.busiest_link_s,
    }


def _reason(ranker: Ranker, placement: Placement) -> str:
    refusal = ranker.verdict(placement)
    if refusal is not None:
        return refusal.detail
    if math.isfinite(_step_s(ranker, placement)):
        return "it compiles to another program: other collectives have direct routes there"
    return "it sends over a link that is missing"


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
