"""`meshwright verify`: whether a plan still computes the right thing here."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

import storage
from adapters.cli import chosen, options, render
from adapters.cli.main import EXIT_FAILED
from tuner.plans.toolchain import installed_toolchain
from tuner.rejections import Rejection


@click.command()
@chosen.plan
@click.option("--workload", default="", metavar="MODULE:NAME", help="For a workload of your own.")
@click.option("--timeout", type=options.Seconds(), default="10min", show_default=True, help="Time for it.")
@options.database
@options.output_format
def command(workload: str, timeout: float, db: str | None, output: str, **named: Any) -> None:
    """Run PLAN on the attached devices and compare it with the unsharded step, on the model's reduced form.

    For a plan that another toolchain made, before it is used: it may compile to something that is silently wrong. Exits
    with 1 if the plan computes something else, or cannot run.
    """
    from adapters.choice import parameters_of
    from adapters.jax.runner import DeviceRunner
    from tuner.ports import WorkloadSpec

    with storage.open_store(db) as store:
        plan = chosen.find(store, **named).plan
    sys.path.insert(0, os.getcwd())  # where a workload of one's own is looked for
    spec = WorkloadSpec(model=workload or plan.workload.model, parameters=parameters_of(plan.workload))
    changes = plan.toolchain.fingerprint.differences(installed_toolchain().fingerprint)
    with DeviceRunner(plan.slice, timeout_s=timeout) as runner:
        found = runner.measure(spec, plan.slice, plan.candidate, plan.placement, enough=lambda samples: True)
    refusal, unchecked, difference = (
        (found, found.detail, None) if isinstance(found, Rejection) else (None, found.unchecked, found.difference)
    )
    if output == "json":
        render.document(
            {
                "verified": difference is not None,
                "reason": None if refusal is None else refusal.reason.value,
                "detail": unchecked,
                "difference": difference,
                "toolchain_changes": list(changes),
            }
        )
    else:
        for change in changes:
            click.echo(f"{change} since the plan was made")
        if refusal is not None:
            click.echo(f"{refusal.reason}: {refusal.detail}", err=True)
        elif difference is None:
            click.echo(f"It runs, all values are finite, and it was not compared: {unchecked}.")
        else:
            click.echo(f"Verified: it differs from the unsharded step by {difference:.2g} of the largest value.")
    if refusal is not None:
        sys.exit(EXIT_FAILED)
