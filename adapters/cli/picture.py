"""`meshwright picture`: a plan's placement as an SVG file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import storage
from adapters.cli import chosen, options
from adapters.cli.plans import write_whole
from adapters.web.pictures import svg
from adapters.web.pictures.scene import Scene, compared
from adapters.web.pictures.slices import draw
from tuner.calibration.records import constants
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default, row_major

EVERY = "every"


@click.command()
@chosen.plan
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="File; else standard output."
)
@click.option("--axis", default="", metavar="NAME", help="Mesh axis that colours the chips; else the busiest.")
@click.option(
    "--collective", default="", metavar="KIND:AXES", help="Whose rings are drawn, for example all-gather:ulysses."
)
@click.option("--group", default="0", show_default=True, metavar="N|every", help="Group of it that is drawn strongly.")
@click.option(
    "--beside", type=click.Choice(["default", "row-major", "none"]), default="default", show_default=True,
    help="Placement that it is set beside: JAX's default, row-major.",
)  # fmt: skip
@click.option("--plane", type=click.IntRange(min=0), help="Only this z of a 3-D slice.")
@options.database
def command(
    path: Path | None,
    axis: str,
    collective: str,
    group: str,
    beside: str,
    plane: int | None,
    db: str | None,
    **named: Any,
) -> None:
    """Draw the slice under PLAN's placement: chips by mesh position, loads of links, rings of a collective.

    PLAN is a plan's id, or a model with --shape and --slice. The program comes from the database; nothing is compiled.
    """
    if group != EVERY and not group.isdecimal():
        raise InvalidValue(f"--group {group!r} is neither a number nor {EVERY!r}")
    with storage.open_store(db) as store:
        stored = chosen.find(store, **named)
        program = chosen.compiled(store, stored.plan).program
        used = constants(store, stored.plan.slice.generation_name, stored.plan.toolchain)
    plan = stored.plan
    slice_, layout = plan.slice, plan.candidate.layout
    links = named["links"] or tuple(map(Degraded.parse, plan.constraints.links))
    scene = Scene(program, slice_, layout, links, used)
    placements = {f"plan {stored.id}, {plan.workload.name} on {slice_.name}": plan.placement}
    if beside == "default":
        placements["JAX's default"] = jax_default(slice_, layout, jax=plan.toolchain.jax_release)
    elif beside == "row-major":
        placements["row-major"] = row_major(slice_)
    one = None if group == EVERY else int(group)
    pictures = [
        scene.picture(placement, title=title, colour=axis, collective=collective, group=one, plane=plane)
        for title, placement in placements.items()
    ]
    full = compared(pictures)
    text = svg.document(svg.beside([draw(picture.scaled(full)) for picture in pictures]), standalone=True)
    if path is None:
        click.echo(text, nl=False)
        return
    write_whole(path, text)
    click.echo(f"Wrote {path}.", err=True)
