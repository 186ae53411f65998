"""`meshwright nightly`: tunes what a file lists, as far as it is due and the budget goes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

import storage
from adapters.cli import options, render
from adapters.cli.main import EXIT_FAILED, EXIT_LOOK
from adapters.cli.plans import write_whole
from adapters.cli.progress import Reporter
from tuner.errors import InvalidValue, TunerError
from tuner.nightly.events import Begun, Ended, NightEvent, Surveyed
from tuner.nightly.lock import NightLock
from tuner.nightly.markdown import markdown
from tuner.nightly.night import Night
from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, EntryReport, NightReport
from tuner.search.events import Event
from tuner.units import spell_seconds

_WRITERS = (".md", ".json")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report here too, as its ending says: .md or .json. May be repeated.",
)
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write Prometheus text here, for a node exporter's textfile collector.",
)
@click.option("--dry-run", is_flag=True, help="Say what is due, in what order and why, and do nothing.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compiles at once. [default: one on each processor]")
@click.option("--timeout", type=options.Seconds(), default="10min", show_default=True, help="Time for one compile.")
@options.database
@options.output_format
@click.option("-q", "--quiet", is_flag=True, help="Print the report only.")
def command(
    file: Path,
    reports: tuple[Path, ...],
    metrics: Path | None,
    dry_run: bool,
    jobs: int | None,
    timeout: float,
    db: str | None,
    output: str,
    quiet: bool,
) -> None:
    """Tune what FILE lists, as far as it is missing, stale or unfinished and the budget goes.

    Exit code 4 if someone must look: something failed, or became slower under a new compiler. A night that is told to
    stop (130) or killed loses nothing but the compiles that it was at; the next one goes on from there.
    """
    from adapters.nightly import CompilerDesk, read_file
    from adapters.search import required_toolchain

    for path in reports:
        if path.suffix not in _WRITERS:
            raise InvalidValue(f"--report {path}: legal are files that end in {' or '.join(_WRITERS)}")
    sys.path.insert(0, os.getcwd())  # a user's own package.module:attribute is looked for where the user stands
    matrix, toolchain = read_file(file), required_toolchain()
    desk = CompilerDesk(db=db, toolchain=toolchain, jobs=jobs, timeout_s=timeout)
    teller = Teller(quiet=quiet or output == "json")
    with storage.open_store(db, create=not dry_run) as store:
        if dry_run:
            _print_preview(Night(matrix, desk=desk, store=store, toolchain=toolchain).preview(), output)
            return
        signal.signal(signal.SIGTERM, _interrupt)
        with teller, NightLock(store, ttl_s=matrix.lock_ttl_s) as lock:
            night = Night(
                matrix,
                desk=desk,
                store=store,
                toolchain=toolchain,
                listener=teller,
                displaced=lambda: lock.lost,
            )
            report = night.run()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is about to end
    problems = _write(report, reports, metrics)
    if output == "json":
        render.document(report.to_json())
    else:
        click.echo(markdown(report), nl=False)
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    sys.exit(_exit_code(report, failed=bool(problems)))


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _exit_code(report: NightReport, *, failed: bool) -> int:
    if report.alarms:
        return EXIT_LOOK
    if report.state is NightState.INTERRUPTED:
        return 130
    return EXIT_FAILED if failed or report.state is NightState.DISPLACED else 0


def _write(report: NightReport, paths: tuple[Path, ...], metrics: Path | None) -> list[str]:
    """Writes the files; returns what went wrong, so that one full disk does not hide the report."""
    problems = []
    texts = {".md": lambda: markdown(report), ".json": lambda: json.dumps(report.to_json(), indent=2) + "\n"}
    for path in paths:
        try:
            write_whole(path, texts[path.suffix]())
        except OSError as error:
            problems.append(f"the report was not written to {path}: {error}")
    if metrics is not None:
        from adapters.nightly_metrics import write_metrics

        try:
            write_metrics(metrics, report)
        except OSError as error:
            problems.append(f"the metrics were not written to {metrics}: {error}")
    return problems


def _print_preview(entries: Sequence[EntryReport], output: str) -> None:
    if output == "json":
        render.document(
            [{"entry": e.name, "due": e.due.value, "why": e.why or e.detail, "ending": e.ending.value} for e in entries]
        )
        return
    rows = [
        [str(number) if e.ending is Ending.NO_TIME else "-", e.name, str(e.priority), e.due.value, e.why or e.detail]
        for number, e in enumerate(entries, start=1)
    ]
    click.echo(render.table([("", ">"), ("entry", "<"), ("priority", ">"), ("due", "<"), ("why", "<")], rows))


class Teller(Reporter):
    """Shows a night as it runs: a line for each entry, and what its search tells."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._started = time.monotonic()

    def __call__(self, event: NightEvent | Event) -> None:
        """Shows one event. An error's traceback is shown even when quiet: the report has only its first line."""
        match event:
            case Surveyed():
                self._say(f"{event.entries} entries, {event.due} due, {event.to_recheck} to re-check first")
            case Begun():
                what = "re-check" if event.recheck else "search"
                self._say(f"\n{what} {event.number} of {event.total}: {event.name} ({event.why})")
            case Ended():
                self._say(_ended(event.report, recheck=event.recheck))
                if event.error is not None and not isinstance(event.error, TunerError):
                    self._line("".join(traceback.format_exception(event.error)).rstrip())
            case _:
                super().__call__(event)

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._line(text)


def _ended(report: EntryReport, *, recheck: bool) -> str:
    if recheck and report.recheck is not None:
        check = report.recheck
        if check.loss is None:
            return f"plan {check.plan_id} does not run under this compiler: {check.reason}"
        figures = f"{render.ms(check.before_s)} ms were, {render.ms(check.after_s)} ms are"
        return f"plan {check.plan_id} {figures} predicted ({check.loss:+.1%})"
    after = "" if report.after_s is None else f", {render.ms(report.after_s)} ms {report.evidence}"
    return f"{report.ending}{after} in {spell_seconds(report.wall_s)}: {report.detail}"
