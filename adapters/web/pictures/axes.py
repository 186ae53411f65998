"""Axes of charts: from figures to places on paper, with round figures as ticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adapters.web.pictures.svg import label, line, number, tag

WIDTH = 560.0
"""Of a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A straight or logarithmic scale from figures to places.

    Attributes:
        low: figure at `start`.
        high: figure at `end`; above `low`.
        start: place on paper.
        end: place on paper.
        log: whether equal distances are equal ratios; both figures are then positive.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(
        cls, values: list[float], start: float, end: float, *, log: bool = False, zero: bool = False, room: float = 0.05
    ) -> Scale:
        """Returns a scale that holds all values, with some room at its ends.

        Args:
            values: figures; those that are not finite (or not positive on a logarithmic scale) are left out.
            start: place of the lowest.
            end: place of the highest.
            log: whether it is logarithmic.
            zero: whether it begins at 0.
            room: share of the range that is left free at each end.
        """
        known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = min(known, default=1.0), max(known, default=1.0)
        if log:
            spread = max(math.log(high / low), 0.1) * room
            return cls(low=low * math.exp(-spread), high=high * math.exp(spread), start=start, end=end, log=True)
        spread = (high - low or abs(high) or 1.0) * room
        return cls(low=0.0 if zero else low - spread, high=high + spread, start=start, end=end)

    def __call__(self, value: float) -> float:
        """Returns the place of a figure; one beyond an end is put there."""
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Returns round figures in the range.

        >>> Scale(low=0, high=10, start=0, end=1).ticks(5)
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        """
        if self.log and self.high / self.low > 20:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, -(-(last - first + 1) // most))
            return [10.0**power for power in range(first, last + 1, step)]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / most))
        step *= next((factor for factor in (1, 2, 5) if span / (step * factor) <= most), 10)
        first = math.ceil(self.low / step - 1e-9)
        return [round(at * step, 12) + 0.0 for at in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The ground of a chart: an x axis below and a y axis to the left."""

    x: Scale
    y: Scale

    def ground(self, x_name: str, y_name: str, say_x: Callable[[float], str], say_y: Callable[[float], str]) -> str:
        """Returns grid lines, ticks and names."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        lines, texts = [], []
        for tick in self.y.ticks():
            at = self.y(tick)
            lines.append(f"M{number(left)} {number(at)}H{number(right)}")
            texts.append(label(left - 6, at + 4, say_y(tick), class_="small soft", anchor="end"))
        for tick in self.x.ticks():
            at = self.x(tick)
            lines.append(f"M{number(at)} {number(bottom)}v4")
            texts.append(label(at, bottom + 16, say_x(tick), class_="small soft", anchor="middle"))
        texts.append(label(right, bottom + 32, x_name, class_="soft", anchor="end"))
        texts.append(label(0, top - 12, y_name, class_="soft"))
        base = tag("path", class_="axis", d=line([(left, bottom), (right, bottom)]))
        return tag("path", class_="hair", d="".join(lines)) + base + "".join(texts)


def plain(value: float) -> str:
    """Returns a figure with no more digits than it has.

    >>> plain(2.0), plain(0.25), plain(12000.0)
    ('2', '0.25', '12k')
    """
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):g}{name}"
    return f"{value:g}"


def milliseconds(value: float) -> str:
    """Returns seconds as a tick in milliseconds."""
    return f"{value * 1e3:g}"
