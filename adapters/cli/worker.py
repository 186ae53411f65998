"""`meshwright worker`: a hand for open studies, on any host that reaches the database."""

from __future__ import annotations

import os
import signal
import sys

import click

from adapters.cli import options
from adapters.cli.progress import Reporter
from tuner.errors import InvalidValue

_PLANNING = ("screen", "compile", "place")


@click.command()
@click.option(
    "--stages",
    default=",".join(_PLANNING),
    show_default=True,
    metavar="LIST",
    help="What to do: screen,compile,place on any host, measure where the devices are.",
)
@click.option("--once", is_flag=True, help="End as soon as no study is open.")
@click.option("--idle", type=options.Seconds(), help="End when no study was open for so long. [default: never]")
@click.option("--jobs", type=click.IntRange(min=1), help="Compiles at once. [default: one on each processor]")
@click.option("--timeout", type=options.Seconds(), default="10min", show_default=True, help="Time for one compile.")
@options.database
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def command(
    stages: str, once: bool, idle: float | None, jobs: int | None, timeout: float, db: str | None, quiet: bool
) -> None:
    """Join open studies through the database and work on them with whoever else does.

    A study is open from `meshwright tune` or `nightly` until one of its searches has ended by itself. With
    `--stages measure` it measures for studies whose search has ended. When it is told to stop (SIGTERM, Ctrl-C), a
    worker returns what it holds at once; when it is killed, others take over a minute later.
    """
    chosen = {stage.strip() for stage in stages.split(",")}
    if chosen not in (set(_PLANNING), {"measure"}):
        raise InvalidValue(f"--stages {stages}; legal: {','.join(_PLANNING)} or measure")
    signal.signal(signal.SIGTERM, stop)
    sys.path.insert(0, os.getcwd())  # as for `tune`: a user's own package.module:attribute
    with Reporter(quiet=quiet) as reporter:

        def told(line: str) -> None:
            if not quiet:
                click.echo(f"worker     {line}", err=True)

        from adapters.worker import measure, work

        try:
            if chosen == {"measure"}:
                measure(db=db, listener=reporter, told=told, once=once, idle_s=idle)
            else:
                work(db=db, listener=reporter, told=told, jobs=jobs, timeout_s=timeout, once=once, idle_s=idle)
        except KeyboardInterrupt:
            told("told to stop; what it held is free")


def stop(signum: int, frame: object) -> None:
    """Raises KeyboardInterrupt, for a signal."""
    # Once: what is being returned must not be interrupted by an impatient second signal.
    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt
