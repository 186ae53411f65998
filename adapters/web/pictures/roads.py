"""The links between chips: two lanes beside each other, each shaded by its load."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adapters.web.pictures.grid import Grid, Point
from adapters.web.pictures.svg import label, number, said, tag
from adapters.web.pictures.words import say_share, say_time
from tuner.network.cost import Degraded
from tuner.slices.links import chip_coords
from tuner.slices.links import links as directed_links
from tuner.slices.slice import Coords
from tuner.timeline.prediction import LinkTraffic

NAMED_LINKS = 128
"""Up to so many links are elements of their own; of more, those with one load are one element."""

LEVELS = 9
"""Shades of a load; 0 is none."""


def level(share: float) -> int:
    """Returns the shade of a load, 0 for none and 9 for all.

    >>> [level(share) for share in (0, 0.01, 0.5, 1)]
    [0, 1, 5, 9]
    """
    if not share > 0:
        return 0
    return max(1, min(LEVELS, math.ceil(share * LEVELS - 1e-9)))


def draw_links(grid: Grid, links: Sequence[LinkTraffic], step_s: float | None, full_s: float) -> str:
    """Draws every directed link; idle ones as one path, the others one by one or by equal load.

    Args:
        grid: where the chips are.
        links: that carry something.
        step_s: of the step; None if it is not known.
        full_s: what the darkest shade stands for.
    """
    slice_, full = grid.slice_, full_s
    loads = {link.name: link for link in links}
    drawn: list[tuple[LinkTraffic | None, str, str]] = []
    every, places = directed_links(slice_), [tuple(place) for place in chip_coords(slice_).tolist()]
    near = np.array([grid.shows(place) for place in places])
    for link in np.flatnonzero(near[every.source] | near[every.target]).tolist():
        start, end = places[every.source[link]], places[every.target[link]]
        axis, step = int(every.axis[link]), int(every.step[link])
        name = f"{','.join(map(str, start))}->{','.join(map(str, end))}"
        load = loads.get(name)
        share = load.busy_s / full if load is not None and full else 0.0
        data, figures = _road(grid, start, end, axis, step, share)
        if data:
            drawn.append((load, data, figures))
    if slice_.cores == 2:
        drawn += _core_roads(grid, loads)
    idle = "".join(data for load, data, _ in drawn if load is None)
    out = [tag("path", class_="q q0", d=idle)] if idle else []
    busy = [(load, data, figures) for load, data, figures in drawn if load is not None]
    each = len(busy) <= NAMED_LINKS
    alike: dict[str, list[tuple[LinkTraffic, str]]] = {}
    for load, data, _ in busy:
        key = load.name if each else _load(load, step_s)
        alike.setdefault(key, []).append((load, data))
    if len(alike) > 2 * NAMED_LINKS:  # a placement without any symmetry: by shade
        alike = {}
        for load, data, _ in busy:
            alike.setdefault(str(level(load.busy_s / full)), []).append((load, data))
    for members in sorted(alike.values(), key=lambda members: members[0][0].busy_s):
        load, data = members[0][0], "".join(data for _, data in members)
        words = _say_alike([load for load, _ in members], step_s)
        shade = level(load.busy_s / full) if full else 0
        hit = tag("path", class_="hit", d=data, stroke_width=9) if each else ""
        out.append(tag("g", said(words) + tag("path", class_=f"q q{shade}", d=data) + hit, class_="mark"))
    out += [figures for _, _, figures in busy]
    busiest = max(links, key=lambda link: link.busy_s, default=None)
    glow = next((data for load, data, _ in busy if busiest is not None and load.name == busiest.name), "")
    if glow:
        out.insert(0, tag("path", class_="busiest", d=glow))
    return "".join(out)


def _say_alike(loads: list[LinkTraffic], step_s: float | None) -> str:
    first, last = min(loads, key=lambda load: load.busy_s), max(loads, key=lambda load: load.busy_s)
    if len(loads) == 1:
        return say_link(first, step_s)
    names = ", ".join(arrow(load.name) for load in loads[:3])
    more = f" and {len(loads) - 3} more" if len(loads) > 3 else ""
    each = f"each {_load(last, step_s)}"
    if first.busy_s < 0.999 * last.busy_s:
        each = f"busy {say_time(first.busy_s)} to {say_time(last.busy_s)}"
    return f"{names}{more}: {each}"


def _road(
    grid: Grid, start: tuple[int, ...], end: tuple[int, ...], axis: int, step: int, share: float
) -> tuple[str, str]:
    """Returns path data of one directed link and, where there is room, its load in percent.

    The two directions of a link run beside each other. A link that leaves the paper is drawn as stubs at both ends, one
    to another plane as a stub at the corner where it leaves: up for higher z, down for lower.
    """
    half, off = grid.cell / 2, 6 if grid.roomy else 3
    percent = f"{100 * share:.0f}" if share >= 0.005 and grid.roomy else ""
    if axis == 2:
        if not grid.shows(start):
            return "", ""
        x, y = grid.middle(start)
        reach = round(grid.gap * 0.4)
        x, y = x + step * (half - 5), y - step * half
        data = f"M{number(x)} {number(y)}l{number(step * reach)} {number(-step * reach)}"
        x, y = x + step * (reach + 3), y - step * reach + (6 if step > 0 else 0)
        anchor = "start" if step > 0 else "end"
        return data, label(x, y, percent, class_="tiny soft", anchor=anchor) if percent else ""
    if not grid.shows(start):
        return "", ""
    a, b = list(grid.middle(start)), list(grid.middle(end)) if grid.shows(end) else [0.0, 0.0]
    across = 1 - axis
    side = -step if axis == 0 else step
    a[across] += side * off
    b[across] += side * off
    a[axis] += step * half
    b[axis] -= step * half
    over = end[axis] - start[axis] != step or end[across] != start[across] or end[2:] != start[2:]
    head = 4 if grid.roomy else 3
    barb = (-step * head, side * head) if axis == 0 else (side * head, -step * head)
    tip = f"l{number(barb[0])} {number(barb[1])}"
    command = "H" if axis == 0 else "V"
    if over:
        stub = round(grid.margin * 0.8)
        data = f"M{number(a[0])} {number(a[1])}{command}{number(a[axis] + step * stub)}{tip}"
        if grid.shows(end):
            before = list(b)
            before[axis] -= step * stub
            data += f"M{number(before[0])} {number(before[1])}{command}{number(b[axis])}{tip}"
        place: Point = (a[0] + step * stub * 0.5, a[1]) if axis == 0 else (a[0], a[1] + step * stub * 0.5)
    else:
        data = f"M{number(a[0])} {number(a[1])}{command}{number(b[axis])}{tip}"
        place = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
    if not percent:
        return data, ""
    if axis == 0:
        return data, label(place[0], place[1] + (-4 if side < 0 else 10), percent, class_="tiny soft", anchor="middle")
    anchor = "end" if side < 0 else "start"
    return data, label(place[0] + 4 * side, place[1] + 3, percent, class_="tiny soft", anchor=anchor)


def _core_roads(grid: Grid, loads: dict[str, LinkTraffic]) -> list[tuple[LinkTraffic | None, str, str]]:
    """Draws the link between the two devices of a chip along its seam: one direction in the upper half."""
    slice_ = grid.slice_
    out: list[tuple[LinkTraffic | None, str, str]] = []
    for chip in range(slice_.num_chips):
        coords = slice_.coords(chip * 2)
        if not grid.shows(coords):
            continue
        x, y = grid.middle(coords)
        for core, side in ((0, -1), (1, 1)):
            load = loads.get(f"{','.join(map(str, coords))} core {core}->{1 - core}")
            if load is not None:
                at = y + side * (grid.cell / 2 + 2)
                left, right = (x - 7, x + 7) if core == 0 else (x + 7, x - 7)
                out.append((load, f"M{number(left)} {number(at)}H{number(right)}", ""))
    return out


def say_link(link: LinkTraffic, step_s: float | None) -> str:
    """Returns for example ``0,0→1,0: busy 12.3 ms, 4 % of the step: all-to-all over ulysses 100 %``."""
    return f"{arrow(link.name)}: {_load(link, step_s)}"


def arrow(name: str) -> str:
    """Returns a link's name for people."""
    return name.replace("->", "→")


def _load(link: LinkTraffic, step_s: float | None) -> str:
    share = f", {say_share(link.busy_s / step_s)} of the step" if step_s and math.isfinite(link.busy_s) else ""
    users = ", ".join(
        f"{name} {say_share(seconds / link.busy_s)}" for name, seconds in link.by_axes if seconds >= 0.01 * link.busy_s
    )
    return f"busy {say_time(link.busy_s)}{share}: {users}"


def draw_degraded(grid: Grid, degraded: Sequence[Degraded]) -> str:
    """Marks links that are missing with a cross, and slow ones with the share of the rate that is left."""
    out = []
    for link in degraded:
        first, second = link.ends
        near = first[2:] == second[2:] and all(abs(a - b) <= 1 for a, b in zip(first, second, strict=True))
        shown = [end for end in link.ends if grid.shows(end)]
        if near and len(shown) == 2:
            (ax, ay), (bx, by) = map(grid.middle, link.ends)
            places = [((ax + bx) / 2, (ay + by) / 2)]
        else:
            places = [_stub_of(grid, end, second if end == first else first) for end in shown]
        state = f"only {100 * link.rate:g} % of its rate" if link.rate else "missing"
        words = said(f"link {','.join(map(str, first))} to {','.join(map(str, second))}: {state}")
        for x, y in places:
            shape = tag("circle", class_="flaw", cx=x, cy=y, r=8)
            sign = "✕" if not link.rate else f"{100 * link.rate:.0f}"
            text = label(x, y + 3, sign, class_="tiny bad strong", anchor="middle")
            out.append(tag("g", words + shape + text, class_="mark"))
    return "".join(out)


def _stub_of(grid: Grid, end: Coords, other: Coords) -> Point:
    """Returns where a link leaves the paper, or the plane."""
    x, y = grid.middle(end)
    axis = next(axis for axis, (a, b) in enumerate(zip(end, other, strict=True)) if a != b)
    away = 1 if end[axis] > other[axis] else -1  # over the seam, away from the other end
    reach = grid.cell / 2 + grid.margin / 2
    if axis == 2:
        up = -away if abs(end[2] - other[2]) == 1 else away
        return x + up * reach, y - up * reach
    return (x + away * reach, y) if axis == 0 else (x, y + away * reach)
