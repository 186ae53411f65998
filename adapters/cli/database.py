"""`meshwright db`: the database's life."""

from __future__ import annotations

import sys

import click

import storage
from adapters.cli import options
from adapters.cli.main import EXIT_FAILED


@click.group()
def command() -> None:
    """Create, upgrade and check the database."""


@command.command()
@options.database
def init(db: str | None) -> None:
    """Create the database, or bring an older one up to date. Safe to repeat, and for several at once."""
    import storage.migrations as migrations
    from storage.urls import parse, shown

    url = db or storage.default_url()
    migrations.init(url)
    click.echo(f"Ready at revision {migrations.current(url)}: {shown(parse(url))}")


@command.command()
@click.option("--revision", default="head", show_default=True, help="Revision to go to.")
@options.database
def upgrade(revision: str, db: str | None) -> None:
    """Bring the database to a newer revision."""
    import storage.migrations as migrations
    from storage.urls import parse, shown

    url = db or storage.default_url()
    migrations.upgrade(url, revision)
    click.echo(f"Now at revision {migrations.current(url)}: {shown(parse(url))}")


@command.command()
@options.database
def check(db: str | None) -> None:
    """Say whether the database is at this version's revision and has its tables. Exit code 1 if not."""
    import storage.migrations as migrations
    from storage.urls import parse, shown

    url = db or storage.default_url()
    problems = migrations.check(url)
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(EXIT_FAILED)
    click.echo(f"In order at revision {migrations.current(url)}: {shown(parse(url))}")
