"""`meshwright calibrate`: times single operations on the attached devices and fits the model's constants to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

import storage
from adapters.cli import options, render
from tuner.errors import InvalidValue, TunerError
from tuner.plans.toolchain import Toolchain, installed_toolchain
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice

if TYPE_CHECKING:
    from tuner.calibration.fitted import Fit
    from tuner.calibration.suite import Benchmark
    from tuner.stores import Store


class Busy(TunerError):
    """Somebody else measures on the slice; the text says who."""


@click.command()
@options.slice_name
@click.option("--only", multiple=True, metavar="WORD", help="Only benchmarks whose name starts so. May be repeated.")
@click.option("--refit", is_flag=True, help="Time nothing; fit to the rows that are stored.")
@click.option("--timeout", type=options.Seconds(), default=120.0, show_default=True, help="For one benchmark.")
@click.option("--quiet", is_flag=True, help="No line for each benchmark.")
@options.database
@options.output_format
def command(
    slice_name: str, only: tuple[str, ...], refit: bool, timeout: float, quiet: bool, db: str | None, output: str
) -> None:
    """Time collectives, products, memory and attention on this host's devices, and fit the model's constants.

    Rows are kept. A fit is used by later searches on the same generation and toolchain if rows that it did not see are
    predicted better by it.
    """
    slice_, toolchain = parse_slice(slice_name), installed_toolchain()
    with storage.open_store(db, create=True) as store:
        if not refit:
            _observe(store, slice_, _chosen(slice_, only), timeout, quiet or output == "json")
        fit = _fit(store, slice_, toolchain)
    if output == "json":
        render.document(fit.to_json())
    else:
        _show(fit)


def _chosen(slice_: Slice, only: tuple[str, ...]) -> list[Benchmark]:
    from tuner.calibration.suite import suite

    benchmarks = suite(slice_)
    found = [each for each in benchmarks if not only or each.name.startswith(only)]
    if not found:
        words = sorted({each.what for each in benchmarks})
        raise InvalidValue(f"no benchmark starts with {' or '.join(only)}; they start with {', '.join(words)}")
    return found


def _observe(store: Store, slice_: Slice, benchmarks: list[Benchmark], timeout_s: float, quiet: bool) -> None:
    from adapters.calibration.session import Refused, observe
    from tuner.heartbeat import Heartbeat

    resource = f"measure/{slice_.name}"
    with Heartbeat(store) as heartbeat:
        if heartbeat.claim(resource) is None:
            holder = next((lease.owner for lease in store.leases(resource) if lease.resource == resource), "somebody")
            raise Busy(f"{holder} measures on {slice_.name}; one at a time")
        for number, outcome in enumerate(observe(slice_, benchmarks, timeout_s=timeout_s), 1):
            if isinstance(outcome, Refused):
                line = f"{outcome.benchmark.name}: not timed, {outcome.reason}"
            else:
                store.save_observations([outcome])
                line = f"{outcome.name}: {render.ms(outcome.seconds)} ms a call, within {outcome.spread:.1%}"
            if not quiet:
                click.echo(f"[{number}/{len(benchmarks)}] {line}", err=True)


def _fit(store: Store, slice_: Slice, toolchain: Toolchain) -> Fit:
    from tuner.calibration.calibration import calibration
    from tuner.calibration.evidence import rows
    from tuner.calibration.fit import fit

    found = rows(store, slice_.generation_name, toolchain)
    if not found:
        raise InvalidValue(f"no rows of {slice_.generation_name} under {toolchain} are stored")
    made = fit(found, calibration(slice_.generation_name), now=datetime.now(UTC))
    store.save_fit(made)
    return made


def _show(fit: Fit) -> None:
    constants: list[list[Any]] = [
        [constant.name, f"{constant.before:.3g}", f"{constant.after:.3g}", f"{constant.uncertainty:.1%}"]
        for constant in fit.constants
    ]
    click.echo(f"{fit.generation}, {fit.toolchain}: {fit.rows} rows")
    if constants:
        click.echo(render.table([("constant", "<"), ("before", ">"), ("after", ">"), ("+-", ">")], constants))
    errors: list[list[Any]] = [
        [each.what, str(each.rows), f"{each.before:.1%}", f"{each.after:.1%}"] for each in fit.held_back
    ]
    if errors:
        columns = [("held back", "<"), ("rows", ">"), ("error before", ">"), ("after", ">")]
        click.echo(render.table(columns, errors))
    click.echo(f"{'Used from now on' if fit.used else 'Not used'}: {fit.reason}.")
