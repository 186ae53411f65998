"""`meshwright lookup`: what a deploy asks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

import storage
from adapters.cli import options, render
from adapters.cli.main import EXIT_NO_PLAN
from tuner.plans.lookup import Query
from tuner.plans.toolchain import installed_toolchain

if TYPE_CHECKING:
    from tuner.network.cost import Degraded


@click.command()
@options.workload
@options.slice_name
@click.option("--revision", help="Revision of the model; any by default.")
@options.reserve_hbm
@options.links
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
    db: str | None,
    output: str,
) -> None:
    """Print the stored plan of MODEL for a shape and a slice.

    Exit code 3 if there is none. A plan that was made for something else than what was asked (another toolchain, a near
    shape) is printed with the reasons.
    """
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
    with storage.open_store(db) as store:
        answer = store.lookup(query)
    stored = answer.plan
    if output == "json":
        render.document(
            {
                "rung": answer.rung.value,
                "reasons": list(answer.reasons),
                "plan": None if stored is None else stored.plan.to_json(),
                "id": None if stored is None else stored.id,
                "version": None if stored is None else stored.version,
            }
        )
    elif stored is not None:
        click.echo("\n".join(render.plan_lines(stored.plan)))
        click.echo(f"  stored      plan {stored.id}, version {stored.version}, {stored.stored_at:%Y-%m-%d %H:%M} UTC")
        click.echo(f"  rung        {answer.rung}")
    for reason in answer.reasons:
        click.echo(f"  note: {reason}", err=stored is None or output == "json")
    if stored is None:
        sys.exit(EXIT_NO_PLAN)
