"""Rings, exchanges and permutes of one collective as lines over the chips."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.web.pictures.grid import Grid, Point
from adapters.web.pictures.svg import number, tag
from tuner.slices.slice import Coords


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A walk over devices.

    Attributes:
        devices: device indices in the order of the walk.
        closed: whether the last leads back to the first.
        chosen: whether it belongs to the group that is looked at; the others are drawn thin.
        directed: whether it goes one way only, as a permute does; rings go both ways at once.
    """

    devices: tuple[int, ...]
    closed: bool = True
    chosen: bool = True
    directed: bool = False

    @property
    def hops(self) -> list[tuple[int, int]]:
        """Pairs of devices that follow each other."""
        pairs = list(zip(self.devices, self.devices[1:], strict=False))
        if self.closed and len(self.devices) > (1 if self.directed else 2):
            pairs.append((self.devices[-1], self.devices[0]))
        return pairs


def lines(grid: Grid, routes: tuple[Route, ...]) -> str:
    """Returns all routes: one path for the thin ones, where there is room, and one for the chosen ones on a halo."""
    out = []
    for chosen in (False, True) if grid.roomy else (True,):
        data = "".join(
            _hop(grid, grid.slice_.coords(a), grid.slice_.coords(b), directed=route.directed)
            for route in routes
            if route.chosen is chosen
            for a, b in route.hops
        )
        if data and chosen:
            out.append(tag("path", class_="halo", d=data))
        if data:
            out.append(tag("path", class_="ring" if chosen else "other", d=data))
    return "".join(out)


def _hop(grid: Grid, a: Coords, b: Coords, *, directed: bool) -> str:
    """Returns path data from chip to chip: straight to a neighbour, around what lies between, or as stubs that end in
    the margin where the way leads over the seam or to another plane."""
    if a == b:
        return ""
    apart = [second - first for first, second in zip(a, b, strict=True)]
    moving = [axis for axis, distance in enumerate(apart) if distance]
    sizes, wrap = grid.slice_.shape, grid.slice_.wrap
    if len(moving) == 1 and moving[0] < 2:
        axis, distance = moving[0], apart[moving[0]]
        if wrap[axis] and 2 * abs(distance) > sizes[axis]:
            away = -1 if distance > 0 else 1
            return _stub(grid, a, axis, away) + _stub(grid, b, axis, -away)
        return _along(grid, a, b, axis, abs(distance), directed=directed)
    if len(moving) == 1 or (len(a) == 3 and apart[2]):
        up = 1 if apart[2] > 0 else -1
        if wrap[2] and 2 * abs(apart[2]) > sizes[2]:
            up = -up
        return _corner(grid, a, up) + _corner(grid, b, -up)
    if not grid.shows(a):
        return ""
    (ax, ay), (bx, by) = grid.middle(a), grid.middle(b)
    dx, dy = bx - ax, by - ay
    trim = grid.cell * 0.55 / (dx * dx + dy * dy) ** 0.5  # from edge to edge: the middle of a chip holds its figures
    start, end = (ax + trim * dx, ay + trim * dy), (bx - trim * dx, by - trim * dy)
    control = ((ax + bx) / 2 + 0.12 * dy, (ay + by) / 2 - 0.12 * dx)
    return _curve(start, control, end, directed=directed)


def _along(grid: Grid, a: Coords, b: Coords, axis: int, distance: int, *, directed: bool) -> str:
    if not grid.shows(a):
        return ""
    half = grid.cell / 2
    start, end = list(grid.middle(a)), list(grid.middle(b))
    forward = 1 if end[axis] > start[axis] else -1
    if distance == 1:
        start[axis] += forward * half
        end[axis] -= forward * half
        return _curve((start[0], start[1]), None, (end[0], end[1]), directed=directed)
    # Hops that begin on odd chips go around on one side, the others on the other, so that they do not cover each other.
    side = -1 if min(a[axis], b[axis]) % 2 else 1
    across = 1 - axis
    start[across] += side * half
    end[across] += side * half
    control = [(first + second) / 2 for first, second in zip(start, end, strict=True)]
    control[across] += side * grid.gap * (0.6 + 0.1 * min(distance, 6))
    return _curve((start[0], start[1]), (control[0], control[1]), (end[0], end[1]), directed=directed)


def _stub(grid: Grid, chip: Coords, axis: int, away: int) -> str:
    if not grid.shows(chip):
        return ""
    x, y = grid.middle(chip)
    length = grid.cell / 2, grid.cell / 2 + grid.margin * 0.9
    if axis == 0:
        return f"M{number(x + away * length[0])} {number(y)}H{number(x + away * length[1])}"
    return f"M{number(x)} {number(y + away * length[0])}V{number(y + away * length[1])}"


def _corner(grid: Grid, chip: Coords, up: int) -> str:
    if not grid.shows(chip):
        return ""
    x, y = grid.middle(chip)
    half, reach = grid.cell / 2, grid.gap * 0.42
    return f"M{number(x + up * half)} {number(y - up * half)}l{number(up * reach)} {number(-up * reach)}"


def _curve(start: Point, control: Point | None, end: Point, *, directed: bool) -> str:
    middle = "L" if control is None else f"Q{number(control[0])} {number(control[1])} "
    data = f"M{number(start[0])} {number(start[1])}{middle}{number(end[0])} {number(end[1])}"
    if directed:
        data += _head(control or start, end)
    return data


def _head(before: Point, end: Point) -> str:
    dx, dy = end[0] - before[0], end[1] - before[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    dx, dy = 6 * dx / length, 6 * dy / length
    left, right = (-dx - dy * 0.6, -dy + dx * 0.6), (-dx + dy * 0.6, -dy - dx * 0.6)
    x, y = end
    return (
        f"M{number(x + left[0])} {number(y + left[1])}L{number(x)} {number(y)}"
        f"L{number(x + right[0])} {number(y + right[1])}"
    )
