"""The picture of a placement: chips by mesh position, the load of every directed link, the rings of a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from adapters.web.pictures import routes, svg
from adapters.web.pictures.grid import Grid
from adapters.web.pictures.roads import LEVELS, arrow, draw_degraded, draw_links, say_link
from adapters.web.pictures.routes import Route
from adapters.web.pictures.svg import Drawing, label, number, said, tag
from adapters.web.pictures.words import say_share, say_time
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.slices.links import links as directed_links
from tuner.slices.slice import Slice
from tuner.timeline.prediction import LinkTraffic

MOST_CHIPS = 256
"""Chips on paper at once: all planes, or one."""

COLOURS, STEPS = 8, 16
_TOP = 62.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePicture:
    """A slice under one placement.

    Attributes:
        title: above the picture.
        slice_: the slice.
        axes: (name, size) of the mesh axes, outermost first.
        devices: device index of each mesh position.
        colour: mesh axis whose positions colour the chips.
        links: links that carry something; `by_axes` says who loads each.
        step_s: of the step that the loads are shares of; None if it cannot run.
        full_s: what the darkest shade stands for; None for the busiest link here. Two pictures are compared under one.
        routes: of the collective that is looked at.
        shown: says which collective that is.
        plane: the only z to draw; None for all where they are few.
        degraded: links that are slow or missing.
    """

    title: str
    slice_: Slice
    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]
    colour: str
    links: tuple[LinkTraffic, ...] = ()
    step_s: float | None = None
    full_s: float | None = None
    routes: tuple[Route, ...] = ()
    shown: str = ""
    plane: int | None = None
    degraded: tuple[Degraded, ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if self.colour not in names:
            raise InvalidValue(f"no mesh axis {self.colour!r} to colour by; there are {', '.join(names)}")
        if len(self.devices) != self.slice_.num_devices:
            raise InvalidValue(f"{len(self.devices)} positions do not fill {self.slice_.name}")

    @property
    def busiest(self) -> LinkTraffic | None:
        """The link that is busy longest."""
        return max(self.links, key=lambda link: link.busy_s, default=None)

    @property
    def scale_s(self) -> float:
        """Seconds of the darkest shade."""
        most = self.busiest.busy_s if self.busiest is not None else 0.0
        return self.full_s if self.full_s is not None else most

    def scaled(self, full_s: float | None) -> SlicePicture:
        """Returns the same picture with another darkest shade."""
        return replace(self, full_s=full_s)


def draw(picture: SlicePicture) -> Drawing:
    """Returns the picture of a slice under a placement."""
    grid = Grid.of(picture.slice_, plane=picture.plane, most_chips=MOST_CHIPS, top=_TOP)
    width = max(grid.size[0], 380.0)
    chips, figures = _chips(picture, grid)
    parts = [
        _heading(picture),
        *(_plane_names(grid)),
        draw_links(grid, picture.links, picture.step_s, picture.scale_s),
        chips,
        routes.lines(grid, picture.routes),
        figures,
        draw_degraded(grid, picture.degraded),
        _badges(picture, grid),
    ]
    bottom = _TOP + grid.size[1]
    legend, height = _legend(picture, bottom + 14, width, roomy=grid.roomy)
    return Drawing(
        width=width,
        height=bottom + height,
        title=picture.title,
        description=describe(picture),
        body="".join([*parts, legend]),
    )


def describe(picture: SlicePicture) -> str:
    """Returns in words what the picture shows."""
    slice_ = picture.slice_
    directed = len(directed_links(slice_)) + (2 * slice_.num_chips if slice_.cores == 2 else 0)
    mesh = ", ".join(f"{name} of {size}" for name, size in picture.axes if size > 1) or "one device"
    wraps = [axis for axis, closed, size in zip("xyz", slice_.wrap, slice_.shape, strict=False) if closed and size > 2]
    words = [
        f"{slice_.num_chips} chips of {slice_.name} as a grid of {' by '.join(map(str, slice_.shape))}"
        f"{', closed along ' + ' and '.join(wraps) if wraps else ''}.",
        f"Mesh: {mesh}; chips are coloured and labelled by {picture.colour}.",
    ]
    busiest = picture.busiest
    if busiest is None:
        words.append("No link carries anything.")
    else:
        words.append(f"{directed - len(picture.links)} of {directed} directed links are idle.")
        words.append(f"The busiest is {say_link(busiest, picture.step_s)}.")
    if picture.degraded:
        words.append(f"Slow or missing: {', '.join(map(str, picture.degraded))} of the rate.")
    if picture.shown:
        words.append(f"Drawn over the chips: {picture.shown}.")
    return " ".join(words)


def _heading(picture: SlicePicture) -> str:
    busiest = picture.busiest
    lines = [label(0, 15, picture.title, class_="head")]
    step = f"{say_time(picture.step_s)} a step (predicted)" if picture.step_s is not None else "does not run here"
    lines.append(label(0, 33, step, class_="soft"))
    if busiest is not None:
        name = f"busiest link {arrow(busiest.name)}, {say_time(busiest.busy_s)}"
        if picture.step_s:
            name += f" ({say_share(busiest.busy_s / picture.step_s)} of the step)"
        lines.append(label(0, 50, name, class_="soft"))
    elif picture.step_s is not None:
        lines.append(label(0, 50, "all links are idle", class_="soft"))
    return "".join(lines)


def _plane_names(grid: Grid) -> list[str]:
    if len(grid.slice_.shape) < 3:
        return []
    out = []
    for z in grid.planes:
        x, y = grid.corner(z)
        alone = f" (one of {grid.slice_.shape[2]} planes)" if len(grid.planes) == 1 < grid.slice_.shape[2] else ""
        out.append(label(x + grid.margin, y + 14, f"z={z}{alone}", class_="soft strong"))
    return out


def _colour(position: int, size: int) -> tuple[str, str]:
    """Returns the classes of a chip and of the text on it."""
    if size <= COLOURS:
        return f"chip c{position}", "on"
    step = position * (STEPS - 1) // max(1, size - 1)
    return f"chip v{step}", "on" if step >= STEPS // 2 else "on-dark"


def _chips(picture: SlicePicture, grid: Grid) -> tuple[str, str]:
    """Returns the chips, and the figures on them, which stand above the routes."""
    slice_, cell = picture.slice_, grid.cell
    logical = np.argsort(picture.devices).tolist()
    names = [name for name, _ in picture.axes]
    axis = names.index(picture.colour)
    size = picture.axes[axis][1]
    long = [index for index, (_, extent) in enumerate(picture.axes) if extent > 1]
    width = cell / slice_.cores
    per_plane = slice_.shape[0] * slice_.shape[1] * slice_.cores
    shown = [device for z in grid.planes for device in range(z * per_plane, (z + 1) * per_plane)]
    shape = [extent for _, extent in picture.axes]
    positions = np.stack(np.unravel_index([logical[device] for device in shown], shape), axis=-1).tolist()
    each = len(shown) <= 2 * MOST_CHIPS
    chips, figures = [], []
    for device, place in zip(shown, positions, strict=True):
        coords, core = slice_.coords(device), slice_.core(device)
        x, y = grid.middle(coords)
        x, y = x - cell / 2 + core * width, y - cell / 2
        chip, ink = _colour(place[axis], size)
        rest = ",".join(str(place[index]) for index in long if index != axis)
        under = rest if grid.roomy and len(rest) <= width / 5 else ""
        figures.append(label(x + width / 2, y + cell / 2 + (1 if under else 4.5), str(place[axis]), class_=f"f {ink}"))
        if under:
            figures.append(label(x + width / 2, y + cell / 2 + 14, under, class_=f"f small {ink}"))
        words = ""
        if each:
            mesh = " ".join(f"{names[index]}={place[index]}" for index in long) or "the only position"
            where = f"chip {','.join(map(str, coords))}" + (f" core {core}" if slice_.cores > 1 else "")
            words = said(f"{where}: {mesh}, id {logical[device]}" if grid.roomy else f"{where}: {mesh}")
        kind = f"mark {chip}" if each else chip
        if grid.roomy:
            chips.append(tag("rect", words, class_=kind, x=x, y=y, width=width, height=cell, rx=grid.round))
        else:  # the shortest that says it: there are many
            chips.append(
                tag("path", words, class_=kind, d=f"M{number(x)} {number(y)}h{number(width)}v{cell}h{number(-width)}z")
            )
    return "".join(chips), "".join(figures)


def _badges(picture: SlicePicture, grid: Grid) -> str:
    """Outlines the chips of the chosen routes and numbers them in the order of a ring."""
    chosen = [route for route in picture.routes if route.chosen]
    slice_, cell = picture.slice_, grid.cell
    width = cell / slice_.cores
    members = list(dict.fromkeys(device for route in chosen for device in route.devices))
    out = []
    for device in members:
        coords = slice_.coords(device)
        if grid.shows(coords):
            x, y = grid.middle(coords)
            x, y = x - cell / 2 + slice_.core(device) * width, y - cell / 2
            out.append(tag("rect", class_="member", x=x, y=y, width=width, height=cell, rx=grid.round))
    if len(chosen) == 1 and chosen[0].closed and not chosen[0].directed and grid.roomy and len(members) > 2:
        for turn, device in enumerate(chosen[0].devices):
            coords = slice_.coords(device)
            if grid.shows(coords):
                x, y = grid.middle(coords)
                x, y = x - cell / 2 + slice_.core(device) * width + 1, y - cell / 2 + 1
                out.append(tag("circle", class_="badge", cx=x, cy=y, r=7))
                out.append(label(x, y + 3, str(turn), class_="in-badge", anchor="middle"))
    return "".join(out)


def _legend(picture: SlicePicture, top: float, width: float, *, roomy: bool) -> tuple[str, float]:
    """Returns the legend and the height that it takes below the grid."""
    size = dict(picture.axes)[picture.colour]
    parts = [label(0, top + 10, f"{picture.colour}:", class_="strong")]
    x, y = 8.0 + 7 * len(picture.colour) + 8, top
    shown: Sequence[int] = range(size)
    if size > STEPS:
        shown = sorted({round(step * (size - 1) / (STEPS - 1)) for step in range(STEPS)})
    for position in shown:
        chip, ink = _colour(position, size)
        if x + 26 > width:
            x, y = 0.0, y + 20
        parts.append(tag("rect", class_=chip, x=x, y=y - 3, width=24, height=17, rx=3))
        parts.append(label(x + 12, y + 10, str(position), class_=f"{ink} small", anchor="middle"))
        x += 26
    y += 26
    under = [name for name, extent in picture.axes if extent > 1 and name != picture.colour]
    if roomy and under:
        parts.append(
            label(0, y + 8, f"small figures on a chip: {', '.join(under)}", class_="soft", most=int(width / 6))
        )
        y += 22
    full = picture.scale_s
    if full > 0:
        parts.append(label(0, y + 10, "link busy:", class_="strong"))
        x = 74.0
        for step in range(LEVELS + 1):
            parts.append(tag("path", class_=f"q q{step}", d=svg.line([(x, y + 6), (x + 15, y + 6)])))
            x += 17
        parts.append(label(x + 4, y + 10, f"0 to {say_time(full)} a step", class_="soft"))
        y += 22
        if roomy:
            parts.append(label(0, y + 8, "figures beside a link: percent of that", class_="soft"))
            y += 22
    if picture.shown:
        parts.append(tag("path", class_="ring", d=svg.line([(0, y + 6), (24, y + 6)])))
        parts.append(label(32, y + 10, picture.shown, class_="soft", most=int(width / 6)))
        y += 22
    return "".join(parts), y - top + 12
