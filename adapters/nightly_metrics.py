"""A night's report as Prometheus text, for the textfile collector of a node exporter."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, NightReport


def write_metrics(path: Path, night: NightReport) -> None:
    """Writes the metrics of a night to a file, whole or not at all."""
    write_to_textfile(str(path), registry(night))


def registry(night: NightReport) -> CollectorRegistry:
    """Returns the metrics of a night. Every gauge is there whatever happened, so that alerts need no `absent()`."""
    out = CollectorRegistry()

    def gauge(name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"meshwright_night_{name}", what, labels, registry=out)

    gauge("start_time_seconds", "When the night began, since 1970.").set(night.started_at.timestamp())
    if night.finished_at is not None:
        gauge("end_time_seconds", "When the night ended, since 1970.").set(night.finished_at.timestamp())
    states = gauge("state", "1 for the state that the night ended in.", "state")
    for state in NightState:
        states.labels(state.value).set(state is night.state)
    gauge("alarms", "Reasons for which someone must look.").set(len(night.alarms))
    spent = gauge("spent_seconds", "Time that the night took.", "budget")
    limit = gauge("budget_seconds", "Time that the night might take; absent without a limit.", "budget")
    for name, limit_s, spent_s in (
        ("wall", night.wall_limit_s, night.wall_spent_s),
        ("device", night.device_limit_s, night.device_spent_s),
    ):
        spent.labels(name).set(spent_s)
        if limit_s is not None:
            limit.labels(name).set(limit_s)
    endings = gauge("entries", "Entries by how they ended.", "ending")
    for ending in Ending:
        endings.labels(ending.value).set(len(night.ended(ending)))
    step = gauge("step_seconds", "One step of the plan in service after the night.", "entry", "evidence")
    loss = gauge("recheck_loss_ratio", "How much slower a former plan is under the new compiler.", "entry")
    for entry in night.entries:
        if entry.after_s is not None:
            step.labels(entry.name, entry.evidence).set(entry.after_s)
        if entry.recheck is not None:
            loss.labels(entry.name).set(float("inf") if entry.recheck.loss is None else entry.recheck.loss)
    return out
