"""`meshwright follow`: this host's part in the measurements of a slice that spans hosts."""

from __future__ import annotations

import os
import signal
import sys

import click

from adapters.cli import options


@click.command()
@options.slice_name
@click.option("--coordinator", metavar="HOST:PORT", required=True, help="Where process 0 waits.")
@click.option("--processes", type=click.IntRange(min=2), required=True, help="Hosts in all.")
@click.option("--process", type=click.IntRange(min=1), required=True, help="This host's number, from 1.")
def command(slice_name: str, coordinator: str, processes: int, process: int) -> None:
    """Take this host's part in measurements that `meshwright tune` decides on elsewhere, until stopped.

    Run it on every host of the slice but the first. There, `meshwright tune --coordinator HOST:PORT --processes N`
    decides what is measured; all hosts run the same trial, and one that fails fails it on all.
    """
    from adapters.jax.hosts import Hosts
    from adapters.jax.runner import follow
    from tuner.slices.names import parse_slice

    signal.signal(signal.SIGTERM, _stop)
    sys.path.insert(0, os.getcwd())  # as for `tune`: a user's own package.module:attribute
    hosts = Hosts(coordinator=coordinator, count=processes, index=process)
    try:
        follow(parse_slice(slice_name), hosts)
    except KeyboardInterrupt:
        click.echo("told to stop", err=True)


def _stop(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
