"""`meshwright plans`: what is stored, and what is in service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import storage
from adapters.cli import options, render
from adapters.files import write_whole as write_whole
from tuner.plans import files
from tuner.plans.plan import StoredPlan


@click.group()
def command() -> None:
    """List, show, export, compare, promote and retire plans."""


@command.command("list")
@click.option("--model", help="Only plans of this model.")
@click.option("--all", "everything", is_flag=True, help="Superseded and retired versions too.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="Rows at most.")
@options.database
@options.output_format
def list_(model: str | None, everything: bool, limit: int, db: str | None, output: str) -> None:
    """List plans, newest first."""
    with storage.open_store(db) as store:
        stored = store.plans(model=model, active_only=not everything, limit=limit)
    if output == "json":
        render.document([_summary(entry) for entry in stored])
        return
    columns = [
        ("id", ">"),
        ("workload", "<"),
        ("slice", "<"),
        ("version", ">"),
        ("state", "<"),
        ("step ms", ">"),
        ("evidence", "<"),
        ("vs A", ">"),
        ("mesh", "<"),
        ("toolchain", "<"),
        ("stored", "<"),
    ]
    rows = [
        [
            str(entry.id),
            entry.plan.workload.name,
            entry.plan.slice.name,
            str(entry.version),
            entry.state.value,
            render.ms(entry.plan.step_s),
            entry.plan.evidence.value,
            render.times(entry.plan.speedup("A")),
            " ".join(f"{name}={size}" for name, size in entry.plan.candidate.layout.axes if size > 1),
            str(entry.plan.toolchain),
            f"{entry.stored_at:%Y-%m-%d %H:%M}",
        ]
        for entry in stored
    ]
    click.echo(render.table(columns, rows) if rows else "No plans.")


@command.command()
@click.argument("plan_id", type=int)
@options.database
@options.output_format
def show(plan_id: int, db: str | None, output: str) -> None:
    """Show one version."""
    with storage.open_store(db) as store:
        entry = store.plan(plan_id)
    if output == "json":
        render.document(_summary(entry) | {"plan": entry.plan.to_json()})
        return
    click.echo("\n".join(render.plan_lines(entry.plan)))
    click.echo(
        f"  stored      version {entry.version}, {entry.state}, {entry.stored_at:%Y-%m-%d %H:%M} UTC: {entry.note}"
    )


@command.command()
@click.argument("plan_id", type=int)
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="File; else standard output."
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["json", "maxdiffusion"]),
    default="json",
    show_default=True,
    help="Our document, or settings and a hook for MaxDiffusion.",
)
@options.database
def export(plan_id: int, path: Path | None, form: str, db: str | None) -> None:
    """Write a plan as a self-contained file.

    As JSON with a digest over it, which lookups and `apply` take; or as a Python file for MaxDiffusion, which says in
    its head what MaxDiffusion does otherwise than the plan.
    """
    with storage.open_store(db) as store:
        plan = store.plan(plan_id).plan
    if form == "maxdiffusion":
        from adapters.models.wan import maxdiffusion

        text = maxdiffusion.render(plan)
        for sentence in maxdiffusion.settings(plan).lost:
            click.echo(f"lost: {sentence}", err=True)
    else:
        text = files.dump(plan)
    if path is None:
        click.echo(text, nl=False)
        return
    write_whole(path, text)
    click.echo(f"Wrote {path}.", err=True)


@command.command()
@click.argument("first", type=int)
@click.argument("second", type=int)
@options.database
def diff(first: int, second: int, db: str | None) -> None:
    """Show what differs between two versions."""
    with storage.open_store(db) as store:
        documents = [store.plan(plan_id).plan.to_json() for plan_id in (first, second)]
    left, right = (dict(_leaves(document)) for document in documents)
    rows = [
        [path, left.get(path, "-"), right.get(path, "-")]
        for path in sorted(left.keys() | right.keys())
        if left.get(path) != right.get(path)
    ]
    headings = [("", "<"), (f"plan {first}", "<"), (f"plan {second}", "<")]
    click.echo(render.table(headings, rows) if rows else "The plans are equal.")


@command.command()
@click.argument("plan_id", type=int)
@click.option("--note", default="promoted by hand", show_default=True, help="Why.")
@options.database
def promote(plan_id: int, note: str, db: str | None) -> None:
    """Put an older version back into service, as a new version."""
    with storage.open_store(db) as store:
        entry = store.promote(store.plan(plan_id).plan, note=note)
    click.echo(f"Plan {entry.id}, version {entry.version}, is active.")


@command.command()
@click.argument("plan_id", type=int)
@click.option("--note", default="retired by hand", show_default=True, help="Why.")
@options.database
def retire(plan_id: int, note: str, db: str | None) -> None:
    """Take a version out of service."""
    with storage.open_store(db) as store:
        entry = store.retire(plan_id, note=note)
    click.echo(f"Plan {entry.id}, version {entry.version}, is retired.")


def _summary(entry: StoredPlan) -> dict[str, Any]:
    return {
        "id": entry.id,
        "workload": entry.plan.workload.name,
        "slice": entry.plan.slice.name,
        "version": entry.version,
        "state": entry.state.value,
        "step_s": entry.plan.step_s,
        "evidence": entry.plan.evidence.value,
        "speedup_over_A": entry.plan.speedup("A"),
        "toolchain": entry.plan.toolchain.to_json(),
        "stored_at": entry.stored_at.isoformat(),
        "note": entry.note,
    }


def _leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}" if path else str(key))]
    return [(path, json.dumps(value))]
