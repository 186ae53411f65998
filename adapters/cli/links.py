"""Which links of a slice carry what, for a terminal."""

from __future__ import annotations

from adapters.cli import render
from tuner.slices.slice import Slice
from tuner.timeline.prediction import LinkTraffic, Prediction
from tuner.timeline.traffic import draw

_SHOWN = 5
_LEAST = 0.01  # shares of a link that are not worth a word


def traffic(slice_: Slice, prediction: Prediction) -> str:
    """Draws a slice with the load of each link and names the busiest links with the traffic that they carry.

    Empty where a prediction holds no links: one chip, or a plan from before they were kept.
    """
    if not prediction.busy_links:
        return ""
    kinds: dict[str, set[str]] = {}
    for collective in prediction.collectives:
        kinds.setdefault(collective.axis_label, set()).add(collective.kind.value)
    rows = [
        [
            link.name,
            render.ms(link.busy_s),
            f"{100 * link.busy_s / prediction.step_s:.1f}%",
            ", ".join(
                _user(label, kinds.get(label, set()), seconds, link)
                for label, seconds in link.by_axes
                if seconds > _LEAST * link.busy_s
            ),
        ]
        for link in prediction.busy_links[:_SHOWN]
    ]
    columns = [("link", "<"), ("busy ms", ">"), ("of step", ">"), ("whose traffic", "<")]
    return "\n".join(
        [
            "Load of each link, in percent of the busiest one (of its two directions the busier one)",
            draw(slice_, prediction.busy_links),
            "",
            render.table(columns, rows),
        ]
    )


def _user(label: str, kinds: set[str], seconds: float, link: LinkTraffic) -> str:
    what = f" ({', '.join(sorted(kinds))})" if kinds else ""
    return f"{label}{what} {100 * seconds / link.busy_s:.0f}%"
