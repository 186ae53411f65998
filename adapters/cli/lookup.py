"""`meshwright lookup`: what a deploy asks."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adapters.cli import options, render
from adapters.cli.main import EXIT_NO_PLAN
from adapters.client import Client, Served
from tuner.errors import InvalidValue
from tuner.plans import answers, files
from tuner.plans.lookup import Query, find
from tuner.plans.plan import PlanState, StoredPlan
from tuner.plans.toolchain import installed_toolchain
from tuner.units import spell_seconds

if TYPE_CHECKING:
    from tuner.network.cost import Degraded


@click.command()
@options.workload
@options.slice_name
@click.option("--revision", help="Revision of the model; any by default.")
@options.reserve_hbm
@options.links
@click.option("--url", metavar="URL", help="Ask a service (`meshwright serve`) instead of a database.")
@click.option(
    "--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Ask a file that `plans export` wrote."
)
@options.database
@options.output_format
def command(
    model: str,
    shape: str,
    videos: int,
    no_guidance: bool,
    slice_name: str,
    revision: str | None,
    reserve_hbm: int,
    links: tuple[Degraded, ...],
    url: str | None,
    path: Path | None,
    db: str | None,
    output: str,
) -> None:
    """Print the stored plan of MODEL for a shape and a slice.

    Exit code 3 if there is none. A plan that was made for something else than what was asked (another toolchain, a near
    shape) is printed with the reasons. While the database or service is away, the last good answer is, with its age.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidValue(
            f"--url {url!r} is no address of a service, for example http://plans:8080; a database is --db"
        )
    toolchain = installed_toolchain()
    query = Query(
        model=model,
        shape=shape,
        slice_name=options.require_slice_name(slice_name),
        variant=options.variant(videos, no_guidance),
        toolchain=toolchain if toolchain.jax and toolchain.libtpu else None,
        revision=revision,
        constraints=options.constraints(reserve_hbm, links),
    )
    if path is not None:
        served = _from_file(path, query)
    else:
        with Client(url or db) as client:
            served = client.lookup(query)
    _print(served, output)
    if served.answer.plan is None:
        sys.exit(EXIT_NO_PLAN)


def _from_file(path: Path, query: Query) -> Served:
    plan = files.read(path)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    stored = StoredPlan(plan=plan, id=0, version=0, state=PlanState.ACTIVE, stored_at=written, note=f"from {path}")
    fits = (plan.workload.model, plan.slice.name) == (query.model, query.slice_name)
    return Served(answer=find(query, lambda model, slice_name: [stored] if fits else []))


def _print(served: Served, output: str) -> None:
    answer = served.answer
    stored = answer.plan
    if output == "json":
        render.document(answers.to_json(answer) | {"age_s": served.age_s})
    elif stored is not None:
        click.echo("\n".join(render.plan_lines(stored.plan)))
        if stored.id:
            click.echo(
                f"  stored      plan {stored.id}, version {stored.version}, {stored.stored_at:%Y-%m-%d %H:%M} UTC"
            )
        if served.kept_at is not None:
            click.echo(f"  kept        {spell_seconds(served.age_s)} ago")
        click.echo(f"  rung        {answer.rung}")
    elif answer.deployed is not None:
        deployed = answer.deployed
        click.echo(f"baseline: {deployed.layout} on {deployed.slice.name}, {deployed.placement.description}")
        click.echo("\n".join(render.grid(deployed.slice, deployed.placement, deployed.layout.axes).splitlines()))
    for reason in answer.reasons:
        click.echo(f"  note: {reason}", err=stored is None or output == "json")
