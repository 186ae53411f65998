"""Who uses which link over one step, and a picture of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.network.fabric import Fabric, Floats
from tuner.slices.slice import Slice
from tuner.slices.twist import onto_grid
from tuner.timeline.prediction import LinkTraffic


def busy_links(fabric: Fabric, by_axes: Mapping[str, Floats]) -> tuple[LinkTraffic, ...]:
    """Returns the links that carry something, the busiest first.

    Args:
        fabric: names the links.
        by_axes: seconds that each link is busy [num_links], by the mesh axes whose collectives cross it.
    """
    total = np.sum([*by_axes.values(), np.zeros(fabric.num_links)], axis=0)
    out = []
    for link in np.flatnonzero(total > 0).tolist():
        users = [(label, float(seconds[link])) for label, seconds in by_axes.items() if seconds[link] > 0]
        users.sort(key=lambda user: (-user[1], user[0]))
        out.append(LinkTraffic(name=fabric.link_name(link), busy_s=float(total[link]), by_axes=tuple(users)))
    return tuple(sorted(out, key=lambda link: (-link.busy_s, link.name)))


def draw(slice_: Slice, links: Sequence[LinkTraffic]) -> str:
    """Returns the slice as text, each link with its load in percent of the busiest one.

    Chips are ``o``; a link shows the busier of its two directions. Planes of a 3-D slice are drawn one after another,
    and their links along z as a list below each plane.
    """
    seconds: dict[frozenset[str], float] = {}
    for link in links:
        ends = frozenset(link.name.split("->"))
        seconds[ends] = max(seconds.get(ends, 0.0), link.busy_s)
    most = max(seconds.values(), default=0.0)

    def load(first: tuple[int, ...], second: tuple[int, ...]) -> str:
        second = tuple(onto_grid(slice_, np.array(second, np.int32)).tolist())
        ends = frozenset(",".join(map(str, place)) for place in (first, second))
        share = seconds.get(ends, 0.0) / most if most else 0.0
        return f"{100 * share:.0f}" if share else "."

    width, height, *depth = slice_.shape
    planes = []
    for z in range(depth[0] if depth else 1):
        at = (z,) if depth else ()
        lines = [f"z={z}"] if depth else []
        for y in range(height):
            row = "o" + "".join(f"{load((x, y, *at), (x + 1, y, *at)):-^7}o" for x in range(width - 1))
            if slice_.wrap[0] and width > 2:
                row += f"{load((width - 1, y, *at), (width, y, *at)):-^7}"
            lines.append(row)
            if y + 1 < height or (slice_.wrap[1] and height > 2):
                lines.append("".join(f"{load((x, y, *at), (x, y + 1, *at)):<8}" for x in range(width)).rstrip())
        if depth and (z + 1 < depth[0] or (slice_.wrap[2] and depth[0] > 2)):
            above = (z + 1) % depth[0]
            ups = (load((x, y, z), (x, y, z + 1)) for y in range(height) for x in range(width))
            lines.append(f"to z={above}: " + " ".join(ups))
        planes.append("\n".join(lines))
    return "\n\n".join(planes)
