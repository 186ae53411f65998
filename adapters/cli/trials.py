"""`meshwright trials`: what was tried, and what became of it."""

from __future__ import annotations

from typing import Any

import click

import storage
from adapters.cli import options, render
from tuner.errors import PlanNotFound
from tuner.stores import Study, Trial, TrialState, TrialStore


@click.command()
@options.workload
@options.slice_name
@click.option("--state", type=click.Choice([state.value for state in TrialState]), help="Only trials in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="Rows at most.")
@options.database
@options.output_format
def command(
    model: str,
    shape: str,
    videos: int,
    no_guidance: bool,
    slice_name: str,
    state: str | None,
    limit: int,
    db: str | None,
    output: str,
) -> None:
    """List the trials of the newest study of MODEL on a slice, best first."""
    with storage.open_store(db) as store:
        study = newest_study(store, model, shape, options.variant(videos, no_guidance), slice_name)
        trials = store.trials(study.id, state=TrialState(state) if state else None)
        refusals = store.refusals(study.id)
    ordered = sorted(trials, key=lambda t: (t.predicted_s is None, t.predicted_s or t.bound_s or 0.0, t.number))[:limit]
    if output == "json":
        render.document(
            {"study": study.key.name, "refused": dict(refusals), "trials": [_document(trial) for trial in ordered]}
        )
        return
    columns = [("trial", ">"), ("state", "<"), ("predicted ms", ">"), ("bound ms", ">"), ("layout", "<"), ("why", "<")]
    click.echo(f"{study.key.name}: {len(trials)} trials; the proof {'stands' if study.proved else 'is open'}")
    if refusals:
        click.echo("refused before the screen: " + ", ".join(f"{n} {reason}" for reason, n in sorted(refusals.items())))
    click.echo(
        render.table(
            columns,
            [
                [
                    str(trial.number),
                    trial.state.value + (f" ({trial.baseline})" if trial.baseline else ""),
                    render.ms(trial.predicted_s),
                    render.ms(trial.bound_s),
                    str(trial.candidate.layout),
                    f"{trial.rejection.reason}: {trial.rejection.detail}" if trial.rejection else "",
                ]
                for trial in ordered
            ],
        )
    )


def newest_study(store: TrialStore, model: str, shape: str, variant: str, slice_name: str) -> Study:
    """Returns the newest study of a workload on a slice. Raises PlanNotFound naming what there is."""
    name = options.require_slice_name(slice_name)
    studies = store.studies()
    for study in studies:
        key = study.key.workload
        if (key.model, key.shape, key.variant, study.key.slice.name) == (model, shape, variant, name):
            return study
    known = sorted({f"{study.key.workload.name} on {study.key.slice.name}" for study in studies})
    there = f"; there are studies of {', '.join(known)}" if known else "; there are no studies at all"
    raise PlanNotFound(f"no study of {model}{'@' + shape if shape else ''} on {name}{there}")


def _document(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.value,
        "stage": trial.stage.value,
        "baseline": trial.baseline,
        "candidate": trial.candidate.to_json(),
        "bound_s": trial.bound_s,
        "estimate_s": trial.estimate_s,
        "predicted_s": trial.predicted_s,
        "measured_s": trial.measured_s,
        "numbers": dict(trial.numbers),
        "placement": "" if trial.placement is None else trial.placement.description,
        "rejection": None
        if trial.rejection is None
        else {
            "stage": trial.rejection.stage.value,
            "reason": trial.rejection.reason.value,
            "detail": trial.rejection.detail,
        },
        "started_at": None if trial.started_at is None else trial.started_at.isoformat(),
        "finished_at": None if trial.finished_at is None else trial.finished_at.isoformat(),
        "host": trial.host,
    }
