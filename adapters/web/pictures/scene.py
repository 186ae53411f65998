"""From a compiled program on a slice to the values that pictures are drawn from."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from adapters.web.pictures.routes import Route
from adapters.web.pictures.slices import SlicePicture
from tuner.calibration.calibration import Calibration, calibration
from tuner.errors import UnknownName
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.network.patterns import FLOWS, Flow
from tuner.network.rings import all_walks
from tuner.placements.placement import Placement
from tuner.program.program import Collective, Program
from tuner.slices.slice import Slice
from tuner.timeline.axes import spanned_axes
from tuner.timeline.prediction import LinkTraffic
from tuner.timeline.ranker import Ranker
from tuner.timeline.traffic import busy_links

MOST_PAIRS = 8
"""Of an exchange in a group of at most so many, every pair is drawn; of a larger one only the members."""

KEPT = 8
"""Placements whose loads are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Collectives of one kind over the same mesh axes, of which a picture shows the groups.

    Attributes:
        key: for example ``all-gather:ulysses``.
        collective: the longest of them.
        seconds: of the step that they take, each alone on the network, overlapped or not.
    """

    key: str
    collective: Collective
    seconds: float

    @property
    def name(self) -> str:
        """``all-gather over ulysses``."""
        return self.key.replace(":", " over ")


class Scene:
    """One program on one slice, ready to be drawn under any placement, by several threads.

    Args:
        program: as compiled.
        slice_: the slice.
        layout: names the mesh axes.
        links: that run slower than the others.
        constants: of the models; None for those that ship.
    """

    def __init__(
        self,
        program: Program,
        slice_: Slice,
        layout: Layout,
        links: Sequence[Degraded] = (),
        constants: Calibration | None = None,
    ) -> None:
        self.slice_, self.layout = slice_, layout
        self._lock = threading.RLock()  # a ranker remembers loads, and is for one thread at a time
        self._known: dict[tuple[int, ...], tuple[float | None, tuple[LinkTraffic, ...]]] = {}
        self.ranker = Ranker(program, slice_, layout, constants or calibration(slice_.generation_name), links)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """What the step's collectives are, by time on the network in mesh order, longest first."""
        order = tuple(range(self.slice_.num_devices))
        took: dict[str, float] = {}
        longest: dict[str, tuple[float, Collective]] = {}
        for collective, times in self._collectives():
            with self._lock:
                each_s = self.ranker.network.cost(collective, order).time_s
            key = self._key(collective)
            took[key] = took.get(key, 0.0) + times * each_s
            if key not in longest or each_s > longest[key][0]:
                longest[key] = each_s, collective
        keys = sorted(took, key=lambda key: -took[key])
        return tuple(Choice(key=key, collective=longest[key][1], seconds=took[key]) for key in keys)

    def choice(self, key: str) -> Choice | None:
        """Returns the collectives of a key, the longest for ``""``, None if there are none at all.

        Raises UnknownName if there are others.
        """
        found = next((choice for choice in self.choices if key in ("", choice.key)), None)
        if found is None and key:
            keys = tuple(choice.key for choice in self.choices)
            raise UnknownName(
                f"no collective {key!r} in this program; there is {', '.join(keys) or 'none'}", nearest=keys
            )
        return found

    def walks(self, choice: Choice, placement: Placement) -> tuple[tuple[Route, ...], ...]:
        """Returns the routes of each group of a collective under a placement, all of them as chosen."""
        collective, devices = choice.collective, placement.devices
        flow = FLOWS[collective.kind]
        if flow is Flow.PERMUTE:
            return tuple((route,) for route in _chains([(devices[a], devices[b]) for a, b in collective.pairs]))
        groups = [[devices[member] for member in dict.fromkeys(group)] for group in collective.groups]
        if flow is Flow.EXCHANGE:
            return tuple(map(_exchange, groups))
        return tuple(
            tuple(Route(devices=ring) for walk in walks for ring in walk.rings)
            for walks in all_walks(self.slice_, groups)
        )

    def picture(
        self,
        placement: Placement,
        *,
        title: str,
        colour: str = "",
        collective: str = "",
        group: int | None = 0,
        plane: int | None = None,
        full_s: float | None = None,
    ) -> SlicePicture:
        """Returns the picture of a placement.

        Args:
            placement: of this program.
            title: above it.
            colour: a mesh axis; ``""`` for the one whose collectives take longest.
            collective: key of a choice; ``""`` for the longest.
            group: which one is drawn strongly; None for none of them.
            plane: the only z to draw; None for all.
            full_s: what the darkest shade stands for; None for the busiest link.

        Raises UnknownName for an axis, collective or group that the program does not have.
        """
        choice = self.choice(collective)
        colour = colour or self.default_colour
        if colour not in self.layout.axis_names:
            names = self.layout.axis_names
            raise UnknownName(f"no mesh axis {colour!r}; there are {', '.join(names)}", nearest=names)
        routes: tuple[Route, ...] = ()
        shown = ""
        if choice is not None:
            walks = self.walks(choice, placement)
            if group is not None and not 0 <= group < max(1, len(walks)):
                raise UnknownName(f"no group {group} of {choice.name}; it has groups 0 to {len(walks) - 1}")
            routes = tuple(
                Route(devices=r.devices, closed=r.closed, directed=r.directed, chosen=r.chosen and index == group)
                for index, walk in enumerate(walks)
                for r in walk
                if r.chosen or index == group  # the pairs of an exchange, which are many, only of the group looked at
            )
            shown = f"{choice.name}, " + (f"group {group} of {len(walks)}" if group is not None else "every group")
        step_s, links = self._loads(placement)
        return SlicePicture(
            title=title,
            slice_=self.slice_,
            axes=self.layout.axes,
            devices=placement.devices,
            colour=colour,
            links=links,
            step_s=step_s,
            full_s=full_s,
            routes=routes,
            shown=shown,
            plane=plane,
            degraded=self.ranker.network.degraded,
        )

    def _loads(self, placement: Placement) -> tuple[float | None, tuple[LinkTraffic, ...]]:
        """Returns the step's seconds and its links; None and nothing where it does not run. The last few are kept."""
        with self._lock:
            known = self._known.get(placement.devices)
            if known is not None:
                return known
            step_s = float(self.ranker.step_s(np.asarray([placement.devices]))[0])
            if np.isfinite(step_s):
                seconds = self.ranker.link_seconds(placement, self._name)
                known = step_s, busy_links(self.ranker.network.fabric, seconds)
            else:
                known = None, ()
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            self._known[placement.devices] = known
            return known

    def refusal(self, placement: Placement) -> str:
        """Returns why a placement does not run; nothing if it does."""
        if self._loads(placement)[0] is not None:
            return ""
        with self._lock:
            rejection = self.ranker.verdict(placement)
        return "it sends over a link that is missing" if rejection is None else rejection.detail

    @property
    def default_colour(self) -> str:
        """The mesh axis whose collectives take longest, else the longest axis."""
        for choice in self.choices:
            axes = spanned_axes(choice.collective, self.layout)
            if len(axes) == 1:
                return axes[0]
        return max(self.layout.axes, key=lambda axis: axis[1])[0]

    def _collectives(self) -> list[tuple[Collective, int]]:
        """Returns the collectives that use links of the slice, with the times that each runs."""
        nodes = self.ranker.program.walk()
        return [(node, times) for node, times in nodes if isinstance(node, Collective) and node.kind in FLOWS]

    def _key(self, collective: Collective) -> str:
        return f"{collective.kind.value}:{'+'.join(spanned_axes(collective, self.layout)) or '-'}"

    def _name(self, collective: Collective) -> str:
        return self._key(collective).replace(":", " over ")


def compared(pictures: Sequence[SlicePicture]) -> float | None:
    """Returns the seconds that the darkest shade stands for where pictures are compared: of the busiest link of all."""
    return max((picture.scale_s for picture in pictures), default=None)


def _exchange(group: list[int]) -> tuple[Route, ...]:
    members = tuple(Route(devices=(device,)) for device in group)
    if len(group) > MOST_PAIRS:
        return members
    pairs = [(a, b) for at, a in enumerate(group) for b in group[at + 1 :]]
    return (*members, *(Route(devices=pair, closed=False, chosen=False) for pair in pairs))


def _chains(pairs: list[tuple[int, int]]) -> list[Route]:
    """Returns the cycles and open chains that the pairs of a permute make."""
    after = {source: target for source, target in pairs if source != target}
    starts = [source for source in after if source not in set(after.values())]
    out, seen = [], set[int]()
    for start in [*starts, *after]:
        if start in seen:
            continue
        walk, at = [], start
        while at in after and at not in seen:
            walk.append(at)
            seen.add(at)
            at = after[at]
        closed = at == start
        out.append(Route(devices=tuple(walk if closed else [*walk, at]), closed=closed, directed=True))
    return out
