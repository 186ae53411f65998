"""Predicted against measured step times, on equal axes, with the diagonal where a prediction is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.web.pictures.axes import Frame, Scale, milliseconds
from adapters.web.pictures.svg import Drawing, label, line, said, tag
from adapters.web.pictures.words import say_share, say_time

SINGLE = 400
"""Pairs that are marks of their own."""

_CELLS = 40
_SIDE = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Trials that were predicted and measured.

    Attributes:
        pairs: (name, predicted step seconds, measured step seconds).
        relative_error: of the model, the band beside the diagonal; None for no band.
        rank: rank agreement, -1 to 1; None where it is not known.
    """

    pairs: Sequence[tuple[str, float, float]]
    relative_error: float | None = None
    rank: float | None = None


def draw(agreement: Agreement) -> Drawing:
    """Returns the picture."""
    title = "Predicted against measured step time"
    pairs = [pair for pair in agreement.pairs if all(math.isfinite(value) and value > 0 for value in pair[1:])]
    if not pairs:
        why = "Nothing was measured: every step time is a prediction."
        body = label(_SIDE / 2, 40, why, class_="soft", anchor="middle")
        return Drawing(width=_SIDE, height=72, title=title, description=why, body=body, live=False)
    values = [value for pair in pairs for value in pair[1:]]
    log = max(values) > 4 * min(values)
    x, y = Scale.over(values, 56, _SIDE - 8, log=log), Scale.over(values, _SIDE - 44, 34, log=log)
    parts = [Frame(x=x, y=y).ground("predicted, ms", "measured, ms", milliseconds, milliseconds)]
    low, high = x.low, x.high
    if agreement.relative_error:
        parts.append(_band(x, y, agreement.relative_error))
    parts.append(tag("path", class_="axis", d=line([(x(low), y(low)), (x(high), y(high))]), stroke_dasharray="4 4"))
    parts.append(_marks(pairs, x, y))
    words = f"{len(pairs)} trials"
    if agreement.rank is not None and math.isfinite(agreement.rank):
        words += f", rank agreement {agreement.rank:.2f}"
    parts.append(label(_SIDE - 8, 14, words, class_="strong", anchor="end"))
    off = sorted(abs(predicted / measured - 1) for _, predicted, measured in pairs)
    description = f"{words}. Half of the predictions are within {say_share(off[len(off) // 2])} of the measurement, "
    description += f"the worst is off by {say_share(off[-1])}."
    return Drawing(width=_SIDE, height=_SIDE, title=title, description=description, body="".join(parts))


def _band(x: Scale, y: Scale, error: float) -> str:
    places = [x.low + (x.high - x.low) * step / 24 for step in range(25)]
    upper = [(x(value), y(value * (1 + error))) for value in places]
    lower = [(x(value), y(value / (1 + error))) for value in reversed(places)]
    return tag("path", said(f"within {say_share(error)}"), class_="band", d=line([*upper, *lower]) + "Z")


def _marks(pairs: list[tuple[str, float, float]], x: Scale, y: Scale) -> str:
    if len(pairs) <= SINGLE:
        return "".join(
            tag(
                "circle",
                said(f"{name}: {say_time(predicted)} predicted, {say_time(measured)} measured"),
                class_="mark measured",
                cx=x(predicted),
                cy=y(measured),
                r=4,
            )
            for name, predicted, measured in pairs
        )
    cells: dict[tuple[int, int], int] = {}
    width, height = (x.end - x.start) / _CELLS, (y.end - y.start) / _CELLS
    for _, predicted, measured in pairs:
        cell = int((x(predicted) - x.start) / width), int((y(measured) - y.start) / height)
        cells[cell] = cells.get(cell, 0) + 1
    most = max(cells.values())
    return "".join(
        tag(
            "circle",
            said(f"{count} trials"),
            class_="mark measured",
            cx=x.start + (column + 0.5) * width,
            cy=y.start + (row + 0.5) * height,
            r=1.5 + 4 * math.sqrt(count / most),
        )
        for (column, row), count in sorted(cells.items())
    )
