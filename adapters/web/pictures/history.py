"""How a search went: every prediction as a ring, every measurement as a dot, the best so far as a step line.

One function serves both pictures, against time and against compiles. Where there are many trials, neighbours share a
mark, which says how many it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.web.pictures.axes import WIDTH, Frame, Scale, milliseconds
from adapters.web.pictures.svg import Drawing, label, number, said, tag
from adapters.web.pictures.words import say_time

SINGLE = 150
"""Trials that are marks of their own."""

_COLUMNS, _ROWS = 32, 14
_HEIGHT = 280.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One finished trial.

    Attributes:
        x: seconds since the study began, or compiles.
        predicted_s: step seconds; None, NaN and infinities are left out.
        measured_s: step seconds.
        name: what is said of it.
    """

    x: float
    predicted_s: float | None
    measured_s: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A study's trials in order of their end.

    Attributes:
        points: of which some may be left out, but never one that was the best when it ended.
        against: ``time`` or ``compiles``.
        baselines: (name, step seconds) drawn as lines across.
    """

    points: Sequence[Point]
    against: str = "compiles"
    baselines: Sequence[tuple[str, float]] = ()


def draw(history: History) -> Drawing:
    """Returns the picture."""
    against = "time" if history.against == "time" else "compiles"
    title = f"Best step time so far, against {against}"
    predicted = _known([(point, point.predicted_s) for point in history.points])
    measured = _known([(point, point.measured_s) for point in history.points])
    if not predicted and not measured:
        return _empty(title, "No trial has a step time yet.")
    values = [value for _, value in [*predicted, *measured]]
    lines = [(name, value) for name, value in history.baselines if math.isfinite(value) and value > 0]
    log = max(values) > 4 * min(values) > 0
    y = Scale.over([*values, *(v for _, v in lines if v < 4 * min(values))], _HEIGHT - 44, 34, log=log)
    latest = max(point.x for point, _ in [*predicted, *measured])
    unit, name = (1.0, "trials compiled") if against == "compiles" else _unit(latest)
    x = Scale(low=0.0, high=1.03 * latest / unit or 1.0, start=56, end=WIDTH - 8)
    predicted, measured = ([(replace(p, x=p.x / unit), v) for p, v in pairs] for pairs in (predicted, measured))
    ground = Frame(x=x, y=y).ground(name, "step, ms", lambda value: f"{value:g}", milliseconds)
    parts = [ground]
    for index, (name, value) in enumerate(lines):
        if y.low <= value <= y.high:
            parts.append(
                tag("path", class_="axis", d=f"M56 {number(y(value))}H{number(WIDTH - 8)}", stroke_dasharray="4 4")
            )
            near = sum(abs(y(value) - y(other)) < 12 for _, other in lines[:index])
            words = f"baseline {name}"
            parts.append(label(WIDTH - 10 - 70 * near, y(value) - 4, words, class_="small soft", anchor="end", most=12))
    parts.append(_marks(predicted, x, y, "predicted"))
    parts.append(_marks(measured, x, y, "measured"))
    parts.append(_best(predicted, x, y, "best"))
    parts.append(_best(measured, x, y, "proven"))
    parts.append(_legend(bool(predicted), bool(measured)))
    return Drawing(
        width=WIDTH, height=_HEIGHT, title=title, description=_describe(predicted, measured), body="".join(parts)
    )


def _unit(latest: float) -> tuple[float, str]:
    for seconds, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if latest >= 2 * seconds:
            return seconds, f"time of the search, {name}"
    return 1.0, "time of the search, seconds"


def _known(pairs: list[tuple[Point, float | None]]) -> list[tuple[Point, float]]:
    return [(point, value) for point, value in pairs if value is not None and math.isfinite(value) and value > 0]


def _describe(predicted: list[tuple[Point, float]], measured: list[tuple[Point, float]]) -> str:
    words = []
    for what, pairs in (("predicted", predicted), ("measured", measured)):
        if pairs:
            values = [value for _, value in pairs]
            words.append(
                f"{len(pairs)} trials {what}: the first {say_time(values[0])}, the best {say_time(min(values))}."
            )
    return " ".join(words)


def _marks(pairs: list[tuple[Point, float]], x: Scale, y: Scale, class_: str) -> str:
    if len(pairs) <= SINGLE:
        return "".join(
            tag(
                "circle",
                said(f"{point.name or 'trial'}: {say_time(value)} {class_}"),
                class_=f"mark {class_}",
                cx=x(point.x),
                cy=y(value),
                r=4,
            )
            for point, value in pairs
        )
    cells: dict[tuple[int, int], list[float]] = {}
    for point, value in pairs:
        column = int((x(point.x) - x.start) / (x.end - x.start) * (_COLUMNS - 1))
        row = int((y(value) - y.start) / (y.end - y.start) * (_ROWS - 1))
        cells.setdefault((column, row), []).append(value)
    most = max(map(len, cells.values()))
    out = []
    for (column, row), values in sorted(cells.items()):
        at = x.start + (column + 0.5) * (x.end - x.start) / _COLUMNS, y.start + (row + 0.5) * (y.end - y.start) / _ROWS
        words = f"{len(values)} trials, {say_time(min(values))} to {say_time(max(values))}"
        radius = 1.5 + 4.5 * math.sqrt(len(values) / most)
        out.append(tag("circle", said(words), class_=f"mark {class_}", cx=at[0], cy=at[1], r=radius))
    return "".join(out)


def _best(pairs: list[tuple[Point, float]], x: Scale, y: Scale, class_: str) -> str:
    if not pairs:
        return ""
    best, data = math.inf, ""
    for point, value in sorted(pairs, key=lambda pair: pair[0].x):
        if value < best:
            data += f"{'H' if data else 'M'}{number(x(point.x))}{'V' if data else ' '}{number(y(value))}"
            best = value
    return tag("path", class_=class_, d=f"{data}H{number(x.end)}")


def _legend(predicted: bool, measured: bool) -> str:
    parts, at = [], 190.0
    for there, mark, line, name in (
        (predicted, "predicted", "best", "predicted"),
        (measured, "measured", "proven", "measured"),
    ):
        if there:
            parts.append(tag("circle", class_=mark, cx=at, cy=10, r=4))
            parts.append(tag("path", class_=line, d=f"M{number(at + 10)} 10h18"))
            parts.append(label(at + 34, 14, f"{name}, and the best", class_="small soft"))
            at += 170
    return "".join(parts)


def _empty(title: str, why: str) -> Drawing:
    body = label(WIDTH / 2, 40, why, class_="soft", anchor="middle")
    return Drawing(width=WIDTH, height=72, title=title, description=why, body=body, live=False)
