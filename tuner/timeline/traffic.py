"""Who uses which link, over one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.placements.placement import Placement
from tuner.slices.slice import Coords
from tuner.timeline.ranker import Ranker


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """One directed link over one step.

    Attributes:
        name: for example ``0,0->1,0``.
        ends: chip coordinates that it leaves and reaches; the same twice for the link between two cores.
        busy_s: how long it is busy, all collectives one after another.
        by_axes: (mesh axes, seconds) of those whose collectives cross it, longest first.
    """

    name: str
    ends: tuple[Coords, Coords]
    busy_s: float
    by_axes: tuple[tuple[str, float], ...]


def traffic(ranker: Ranker, placement: Placement) -> tuple[LinkTraffic, ...]:
    """Returns every link of the slice, the busiest first; idle ones are at the end with 0 seconds."""
    fabric = ranker.network.fabric
    by_label = ranker.link_seconds(placement)
    total = np.sum([*by_label.values(), np.zeros(fabric.num_links)], axis=0)
    out = []
    for link in np.flatnonzero(fabric.exists).tolist():
        users = [(label, float(seconds[link])) for label, seconds in by_label.items() if seconds[link] > 0]
        out.append(
            LinkTraffic(
                name=fabric.link_name(link),
                ends=fabric.link_ends(link),
                busy_s=float(total[link]),
                by_axes=tuple(sorted(users, key=lambda user: (-user[1], user[0]))),
            )
        )
    return tuple(sorted(out, key=lambda link: (-link.busy_s, link.name)))
