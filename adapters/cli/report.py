"""`meshwright report`: a step time that production observed."""

from __future__ import annotations

from typing import Any

import click

import storage
from adapters.cli import chosen, options, render
from tuner.plans.toolchain import installed_toolchain
from tuner.production import Report, report


@click.command()
@chosen.plan
@click.option("--step-ms", type=click.FloatRange(min=0, min_open=True), required=True, help="Observed step, in ms.")
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Steps that it rests on.")
@click.option("--device", metavar="KIND", default="", help="What JAX calls the devices. [default: the plan's]")
@click.option("--this-toolchain", is_flag=True, help="Under the toolchain installed here. [default: the plan's]")
@click.option("--host", default="", help="Where it was observed.")
@click.option("--note", default="", help="Anything else.")
@options.database
@options.output_format
def command(
    step_ms: float,
    samples: int,
    device: str,
    this_toolchain: bool,
    host: str,
    note: str,
    db: str | None,
    output: str,
    **named: Any,
) -> None:
    """Report a step time of PLAN that production observed. It is shown beside the prediction, and promotes nothing."""
    with storage.open_store(db) as store:
        stored = chosen.find(store, **named)
        kept = report(
            store,
            stored.id,
            Report(
                step_s=step_ms / 1e3,
                samples=samples,
                device_kind=device,
                toolchain=installed_toolchain() if this_toolchain else None,
                host=host,
                note=note,
            ),
        )
    if output == "json":
        render.document(
            {
                "id": kept.id,
                "plan_id": stored.id,
                "step_s": kept.step_s,
                "predicted_s": kept.predicted_s,
                "ratio": kept.ratio,
                "samples": kept.count,
                "device_kind": kept.device_kind,
                "toolchain": kept.toolchain.to_json(),
            }
        )
        return
    ratio = "" if kept.ratio is None else f", {kept.ratio:.2f} of the predicted {render.ms(kept.predicted_s)} ms"
    click.echo(f"Production, plan {stored.id}: {render.ms(kept.step_s)} ms over {kept.count} steps{ratio}.")
