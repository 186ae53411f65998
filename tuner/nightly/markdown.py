"""A night's report for people, in Markdown: what needs a look first, then what changed, then what did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, EntryReport, NightReport
from tuner.units import spell_seconds

_STATES = {
    NightState.RUNNING: "It is running, or was killed.",
    NightState.COMPLETE: "Everything that was due was done.",
    NightState.OUT_OF_TIME: "The budget ended it before everything that was due was done.",
    NightState.INTERRUPTED: "It was told to stop; the next night goes on from there.",
    NightState.DISPLACED: "It lost its lock and stopped, so that two nights do not overlap.",
    NightState.DIED: "It was killed; the next night goes on from there.",
}


def markdown(night: NightReport) -> str:
    """Returns the report."""
    parts = [
        f"# Night of {night.started_at:%Y-%m-%d %H:%M} UTC",
        f"{_STATES[night.state]} Host {night.host}, {night.toolchain}. "
        "Step times are predictions unless it says measured.",
        "- " + "\n- ".join(_budgets(night)),
    ]
    if night.alarms:
        parts += ["## Someone must look", _list(night.alarms)]
    improved, regressed = night.improved, night.regressed
    if improved:
        rows = [[*_change(e), f"{e.gain or 0:.1%}", e.evidence, e.why] for e in improved]
        parts += ["## Improved", _table(["entry", "before ms", "now ms", "gain", "evidence", "why"], rows)]
    first = [e for e in night.ended(Ending.PROMOTED) if e.reference_s is None and e.plan_before is None]
    if first:
        rows = [[e.name, _ms(e.after_s), e.evidence, _proof(e), str(e.compiled)] for e in first]
        parts += ["## New", _table(["entry", "ms", "evidence", "proof", "compiled"], rows)]
    if regressed:
        rows = [_regression(e) for e in regressed]
        columns = ["entry", "before ms", "recompiled ms", "loss", "now in service ms", "what changed"]
        parts += ["## Regressed under the new compiler", _table(columns, rows)]
    steady = [e for e in night.entries if e.recheck is not None and e not in regressed]
    if steady:
        rows = [_regression(e) for e in steady]
        columns = ["entry", "before ms", "recompiled ms", "loss", "now in service ms", "what changed"]
        parts += ["## As fast or faster under the new compiler", _table(columns, rows)]
    kept = [e for e in night.ended(Ending.KEPT, Ending.PROMOTED) if e not in improved and e not in first]
    if kept:
        rows = [[e.name, _ms(e.after_s), e.evidence, _proof(e), e.detail] for e in kept]
        parts += ["## No faster", _table(["entry", "ms", "evidence", "proof", "how it ended"], rows)]
    for heading, endings in (
        ("Failed", (Ending.FAILED, Ending.IMPOSSIBLE)),
        ("Stopped in the middle", (Ending.INTERRUPTED,)),
    ):
        entries = night.ended(*endings)
        if entries:
            parts += [f"## {heading}", _list(f"{e.name}: {e.detail}" for e in entries)]
    unfinished = [e for e in night.ended(Ending.PROMOTED, Ending.KEPT) if not e.finished]
    if unfinished:
        parts += ["## To be continued", _list(f"{e.name}: {e.detail}" for e in unfinished)]
    skipped = night.ended(Ending.FRESH, Ending.NO_TIME)
    if skipped:
        parts += ["## Skipped", _list(f"{e.name}: {_skipped(e)}" for e in skipped)]
    return "\n\n".join(parts) + "\n"


def _budgets(night: NightReport) -> Sequence[str]:
    return [
        _budget("wall time", night.wall_limit_s, night.wall_spent_s),
        _budget("time on devices", night.device_limit_s, night.device_spent_s),
    ]


def _budget(what: str, limit_s: float | None, spent_s: float) -> str:
    if limit_s is None:
        return f"{what}: {spell_seconds(spent_s)} spent, no limit"
    left = max(0.0, limit_s - spent_s)
    return f"{what}: {spell_seconds(spent_s)} of {spell_seconds(limit_s)} spent, {spell_seconds(left)} left"


def _change(entry: EntryReport) -> list[str]:
    return [entry.name, _ms(entry.reference_s), _ms(entry.after_s)]


def _regression(entry: EntryReport) -> list[str]:
    check = entry.recheck
    assert check is not None
    loss = "does not run" if check.loss is None else f"{check.loss:+.1%}"
    before = _ms(check.before_s) + ("" if check.restated else " (as stored)")
    what = "; ".join(check.changes) + (f"; {check.reason}" if check.reason else "")
    return [entry.name, before, _ms(check.after_s), loss, _ms(entry.after_s), what]


def _skipped(entry: EntryReport) -> str:
    if entry.ending is Ending.FRESH:
        return f"fresh, {entry.why}"
    return f"{entry.detail} (it is due: {entry.why})"


def _proof(entry: EntryReport) -> str:
    return "proved" if entry.proved else "open"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_cell(line)}" for line in lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Returns a text on one line, with nothing in it that Markdown would take for its own."""
    for mark in "\\|<>`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
