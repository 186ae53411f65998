"""Parallel coordinates: a vertical line for each parameter of the layout, a strand for each trial.

Strands are drawn slowest first and shaded by rank, so that the fastest lie on top. Of many trials the best are strands
of their own; the others lie behind them as bands between values that occur together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from adapters.web.pictures.axes import Scale, milliseconds
from adapters.web.pictures.svg import Drawing, label, line, number, said, tag
from adapters.web.pictures.words import say_time

STRANDS = 100
"""Trials that are strands of their own."""

AXES = 12
"""Parameters that are drawn, those that vary first."""

_HEIGHT = 300.0
_TOP, _BOTTOM = 44.0, _HEIGHT - 16
_VALUES = 14  # on one axis; more are thinned out


@dataclass(frozen=True, slots=True, kw_only=True)
class Strand:
    """One trial.

    Attributes:
        name: what is said of it.
        values: by parameter; one that a trial does not have is drawn as a dash.
        step_s: its step seconds.
    """

    name: str
    values: dict[str, str | int]
    step_s: float


def draw(strands: Sequence[Strand], parameters: Sequence[str] = ()) -> Drawing:
    """Returns the picture.

    Args:
        strands: any number.
        parameters: in which order; empty for all that vary, in the order of their first appearance.
    """
    title = "Trials by the parameters of their layouts"
    known = sorted((s for s in strands if math.isfinite(s.step_s)), key=lambda strand: strand.step_s)
    names = list(parameters) or list(dict.fromkeys(name for strand in known for name in strand.values))
    domains = {name: _domain([strand.values.get(name, "—") for strand in known]) for name in names}
    names = [name for name in names if len(domains[name]) > 1][:AXES]
    if len(known) < 2 or not names:
        why = "Too few trials that differ to compare parameters."
        body = label(280, 40, why, class_="soft", anchor="middle")
        return Drawing(width=560, height=72, title=title, description=why, body=body, live=False)
    pitch = max(92.0, 560 / (len(names) + 1))
    columns = [44 + pitch * index for index in range(len(names) + 1)]
    times = Scale.over([strand.step_s for strand in known], _TOP, _BOTTOM)
    places = {name: _places(domains[name]) for name in names}

    def path(strand: Strand) -> list[tuple[float, float]]:
        points = [(x, places[name][strand.values.get(name, "—")]) for x, name in zip(columns, names, strict=False)]
        return [*points, (columns[-1], times(strand.step_s))]

    best, rest = known[:STRANDS], known[STRANDS:]
    parts = [_bands([path(strand) for strand in rest])] if rest else []
    for rank, strand in reversed(list(enumerate(best))):
        shade = 0 if rank == 0 else min(3, 1 + 3 * rank // len(best))
        words = said(f"{strand.name}: {say_time(strand.step_s)}")
        fastest = " first" if rank == 0 else ""
        parts.append(tag("path", words, class_=f"mark strand s{shade}{fastest}", d=_soft(path(strand))))
    for x, name in zip(columns, names, strict=False):
        parts.append(_axis(x, name, [(places[name][value], str(value)) for value in domains[name]]))
    ticks = [(times(tick), milliseconds(tick)) for tick in times.ticks(5)]
    parts.append(_axis(columns[-1], "step, ms", ticks))
    first = known[0]
    description = (
        f"{len(known)} trials over {', '.join(names)}. The fastest, {first.name} with {say_time(first.step_s)}, has "
        + ", ".join(f"{name} {first.values.get(name, 'none')}" for name in names)
        + "."
    )
    return Drawing(width=columns[-1] + 52, height=_HEIGHT, title=title, description=description, body="".join(parts))


def _domain(values: list[str | int]) -> list[str | int]:
    distinct = set(values)
    return sorted(
        distinct, key=lambda value: (isinstance(value, str), value if isinstance(value, int) else 0, str(value))
    )


def _places(domain: list[str | int]) -> dict[str | int, float]:
    step = (_BOTTOM - _TOP) / max(1, len(domain) - 1)
    return {value: _BOTTOM - index * step for index, value in enumerate(domain)}


def _axis(x: float, name: str, ticks: list[tuple[float, str]]) -> str:
    every = max(1, -(-len(ticks) // _VALUES))
    parts = [tag("path", class_="axis", d=f"M{number(x)} {number(_TOP)}V{number(_BOTTOM)}")]
    parts.append(label(x, _TOP - 18, name, class_="strong", anchor="middle", most=16))
    for at, text in ticks[::every]:
        parts.append(tag("circle", class_="bar", cx=x, cy=at, r=2.5))
        parts.append(label(x, at - 6, text, class_="small lit", anchor="middle", most=16))
    return "".join(parts)


def _soft(points: list[tuple[float, float]]) -> str:
    x, y = points[0]
    data = f"M{number(x)} {number(y)}"
    for x2, y2 in points[1:]:
        bend = (x2 - x) * 0.4
        data += f"C{number(x + bend)} {number(y)} {number(x2 - bend)} {number(y2)} {number(x2)} {number(y2)}"
        x, y = x2, y2
    return data


def _bands(paths: list[list[tuple[float, float]]]) -> str:
    """Returns one line for each pair of places that paths join, as thick as they are many."""
    counts: dict[tuple[tuple[float, float], tuple[float, float]], int] = {}
    for points in paths:
        for a, b in pairwise(points):
            # Step times are continuous: 24 places are enough for a band.
            key = a, (b[0], round(b[1] / 10) * 10) if b is points[-1] else b
            counts[key] = counts.get(key, 0) + 1
    most = max(counts.values())
    return "".join(
        tag("path", class_="braid", d=line([a, b]), stroke_width=0.5 + 9 * count / most)
        for (a, b), count in counts.items()
    )
