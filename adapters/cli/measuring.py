"""Options of commands that may measure, and what they print of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adapters.cli import render

if TYPE_CHECKING:
    from adapters.measuring import Measurement
    from tuner.search.measure import MeasuredOutcome
    from tuner.search.measured import Timed

F = TypeVar("F", bound=Callable[..., Any])


def options(function: F) -> F:
    """Adds the options that say whether and how promising candidates are measured."""
    for option in (
        click.option("--processes", type=click.IntRange(min=1), default=1, help="With --coordinator: hosts in all."),
        click.option("--coordinator", metavar="HOST:PORT", help="Where this host waits for others (`follow`)."),
        click.option(
            "--trace", type=click.Path(file_okay=False, path_type=Path), help="Directory for profiler traces."
        ),
        click.option(
            "--measure",
            type=click.Choice(["auto", "never", "require"]),
            default="auto",
            show_default=True,
            help="Time the promising candidates on attached devices; auto: if there are any.",
        ),
    ):
        function = option(function)
    return function


def measurement(
    *, measure: str, trace: Path | None, coordinator: str | None, processes: int, timeout_s: float
) -> Measurement:
    """Returns what these options ask for."""
    from adapters.jax.runner import hosts_from
    from adapters.measuring import Measurement, When

    return Measurement(when=When(measure), timeout_s=timeout_s, trace=trace, hosts=hosts_from(coordinator, processes))


def table(outcome: MeasuredOutcome) -> str:
    """Returns what was measured, fastest first, and of how many candidates it was chosen."""
    columns = [
        ("trial", ">"),
        ("measured layout", "<"),
        ("role", "<"),
        ("ms", ">"),
        ("quartiles", ">"),
        ("predicted", ">"),
        ("ratio", ">"),
        ("what", "<"),
    ]
    head = (
        f"Measured {len(outcome.timed)} of {outcome.predicted} predicted candidates, {outcome.samples} blocks"
        + _where(outcome)
    )
    return f"{head}\n{render.table(columns, [_row(timed) for timed in outcome.timed])}"


def document(outcome: MeasuredOutcome) -> dict[str, Any]:
    """Returns a JSON document of what was measured."""
    return {
        "study": outcome.study,
        "predicted": outcome.predicted,
        "samples": outcome.samples,
        "timed": [
            {
                "trial": timed.trial.number,
                "candidate": timed.entry.candidate.to_json(),
                "role": timed.entry.role.value,
                "baseline": timed.entry.name,
                "predicted_s": timed.entry.predicted_s,
                "measured_s": timed.trial.measured_s,
                "ratio": timed.trial.numbers.get("ratio"),
                "state": timed.trial.state.value,
                "rejection": None if timed.trial.rejection is None else timed.trial.rejection.detail,
                "measurement": None if timed.measured is None else timed.measured.to_json(),
            }
            for timed in outcome.timed
        ],
    }


def _row(timed: Timed) -> list[str]:
    numbers, trial = timed.trial.numbers, timed.trial
    quartiles = numbers.get("first_quartile_s"), numbers.get("third_quartile_s")
    ratio = numbers.get("ratio")
    what = trial.rejection.reason.value if trial.rejection is not None else ""
    if not what and timed.measured is not None:
        what = "" if timed.measured.steady else "not steady"
    return [
        str(trial.number),
        str(trial.candidate.layout),
        f"baseline {timed.entry.name}" if timed.entry.name else timed.entry.role.value,
        render.ms(trial.measured_s),
        "-" if None in quartiles else " to ".join(map(render.ms, quartiles)),
        render.ms(trial.predicted_s),
        "-" if ratio is None else f"{ratio:.2f}",
        what,
    ]


def _where(outcome: MeasuredOutcome) -> str:
    measured = next((timed.measured for timed in outcome.timed if timed.measured is not None), None)
    if measured is None:
        return ""
    hosts = f" on {measured.hosts} hosts" if measured.hosts > 1 else ""
    return f", on {measured.devices} devices of kind {measured.device_kind}{hosts}, {measured.host}"
