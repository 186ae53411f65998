"""Shows a search as it runs: a moving bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from adapters.cli import render
from tuner.search.events import (
    Enumerated,
    Event,
    ScreenEnded,
    Screening,
    Stopped,
    TrialEnded,
    TrialMeasured,
    TrialStarted,
)


class Reporter:
    """A listener that writes to standard error, so that results alone go to standard output."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = sys.stderr.isatty() and not quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._screening: TaskID | None = None
        self._running: dict[int, TaskID] = {}
        self._screen: Screening | None = None

    def __enter__(self) -> Reporter:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        if not self._quiet:
            self._show(event)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _show(self, event: Event) -> None:
        match event:
            case Enumerated():
                refused = ", ".join(f"{count} {reason}" for reason, count in sorted(event.refused.items()))
                self._line(f"enumerate  {event.legal} layouts are legal" + (f"; refused: {refused}" if refused else ""))
            case Screening():
                self._screen = event
                if self._live:
                    if self._screening is None:
                        self._screening = self._progress.add_task("screen", total=event.total)
                    self._progress.update(self._screening, completed=event.done)
            case ScreenEnded():
                self._screen_ended(event)
            case TrialStarted():
                name = f"compile  trial {event.trial.number}: {event.trial.candidate.layout}"
                if self._live:
                    self._running[event.trial.number] = self._progress.add_task(name, total=None)
            case TrialEnded():
                if event.trial.number in self._running:
                    self._progress.remove_task(self._running.pop(event.trial.number))
                self._line(_ended(event))
            case TrialMeasured():
                self._line(_measured(event))
            case Stopped():
                for task in self._running.values():
                    self._progress.remove_task(task)

    def _screen_ended(self, event: ScreenEnded) -> None:
        if self._screening is not None:
            self._progress.remove_task(self._screening)
            self._screening = None
        looked = self._screen.done if self._screen else 0
        if looked < 2:  # a sampler that proposes one by one: its trials have lines of their own
            return
        cached = f" ({self._screen.cached} known from before)" if self._screen and self._screen.cached else ""
        rejected = ", ".join(f"{count} {reason}" for reason, count in sorted(event.rejected.items()))
        self._line(
            f"screen     {looked} looked at{cached} in {event.elapsed_s:.1f} s, {event.open} open"
            + (f"; rejected: {rejected}" if rejected else "")
        )
        self._screen = None


def _ended(event: TrialEnded) -> str:
    trial = event.trial
    baseline = f" (baseline {trial.baseline})" if trial.baseline else ""
    flags = "".join(f" {name}={value}" for name, value in trial.candidate.compiler_options)
    head = f"compile    trial {trial.number}: {trial.candidate.layout}{flags}{baseline}"
    if trial.rejection is not None:
        return f"{head}: rejected, {trial.rejection.reason}: {trial.rejection.detail}"
    how = "known from before" if event.cached else f"compiled in {event.compile_s:.1f} s"
    best = ", the best so far" if event.best else ""
    return f"{head}: {how}, {event.placements} placements, {render.ms(trial.predicted_s)} ms predicted{best}"


def _measured(event: TrialMeasured) -> str:
    trial = event.trial
    name = f"baseline {trial.baseline}" if trial.baseline else event.role
    head = f"measure    trial {trial.number}: {trial.candidate.layout} ({name})"
    if trial.measured_s is None:
        assert trial.rejection is not None
        return f"{head}: rejected, {trial.rejection.reason}: {trial.rejection.detail}"
    ratio = trial.numbers.get("ratio")
    against = "" if ratio is None else f", {ratio:.2f} of the prediction"
    stopped = ", stopped: slower" if trial.rejection is not None else ""
    return f"{head}: {render.ms(trial.measured_s)} ms over {trial.numbers['samples']:.0f} blocks{against}{stopped}"
