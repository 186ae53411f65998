"""`meshwright db`: the database's life."""

from __future__ import annotations

import sys

import click

import storage
from adapters.cli import options, render
from adapters.cli.main import EXIT_FAILED
from tuner.upkeep import MOST_PROGRAM_BYTES


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


@command.command()
@click.option(
    "--keep",
    type=options.Bytes(),
    default=f"{MOST_PROGRAM_BYTES >> 30}GiB",
    show_default=True,
    help="What compiled programs may take, compressed.",
)
@click.option("--vacuum", is_flag=True, help="Give the space of an SQLite file back to the file system too.")
@options.database
def prune(keep: int, vacuum: bool, db: str | None) -> None:
    """Drop compiled programs, the longest unused first, but never what an active plan points to.

    Trials and plans stay. A search that needs a dropped program compiles it again.
    """
    with storage.open_store(db) as store:
        pruned = store.prune_programs(most_bytes=keep)
        store.drop_old_leases()
    if vacuum:
        import storage.migrations as migrations

        migrations.vacuum(db or storage.default_url())
    click.echo(
        f"Dropped {pruned.dropped} programs of {render.gib(pruned.dropped_bytes)} GiB; {pruned.kept} of "
        f"{render.gib(pruned.kept_bytes)} GiB stay, {render.gib(pruned.needed_bytes)} GiB of it for active plans"
    )


@command.command()
@click.option("--rebuild", is_flag=True, help="Make every Optuna study anew, not only those that disagree.")
@options.database
def reconcile(rebuild: bool, db: str | None) -> None:
    """Bring Optuna's studies in order from our tables, which are the truth."""
    import optuna

    from tuner.search.books import reconcile as mend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with storage.open_store(db) as store:
        for mended in mend(store, storage.optuna_storage(db), rebuild=rebuild):
            if mended.left:
                outcome = f"left as it is: {mended.left}"
            elif mended.rebuilt:
                outcome = f"made anew with {mended.mended} trials"
            else:
                outcome = f"{mended.mended} trials mended" if mended.mended else "in order"
            click.echo(f"{mended.study}: {outcome}")
