"""The timeline of a step: compute, and beside it each collective, with what of it the step waits for.

Loops are folded: the step shows each as one block with its trip count, and below it one trip of the longest is
unfolded, and so on down to the innermost. What is narrower than a pixel is drawn together with its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapters.web.pictures.axes import Scale
from adapters.web.pictures.svg import Drawing, label, number, said, tag
from adapters.web.pictures.words import say_bytes, say_time
from tuner.timeline.trace import LOOP, Span, Trace

WIDTH = 860.0
_LEFT = 84.0
_LANE, _GAP = 24.0, 4.0
_NARROWEST = 0.8
_LANES = 5  # of collectives at once; more are drawn over each other in the last
_STRIPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step to be drawn.

    Attributes:
        trace: of the step.
        over: says of each collective's name what it is, for example ``all-gather over ulysses``.
    """

    trace: Trace
    over: Mapping[str, str] = field(default_factory=dict)


def draw(timeline: Timeline) -> Drawing:
    """Returns the picture."""
    parts, top = [_legend(timeline.trace)], 26.0
    trace: Trace | None = timeline.trace
    within, opened = "", None
    for _ in range(_STRIPS):
        if trace is None:
            break
        if opened is not None:
            parts.append(_zoom(opened, top))
            top += 22
        drawn, longest, height = _strip(trace, timeline.over, top, within)
        parts.append(drawn)
        scale = Scale(low=0.0, high=trace.seconds or 1.0, start=_LEFT, end=WIDTH - 8)
        top += height
        trace = None
        if longest is not None and longest.body is not None:
            trace = longest.body
            within = f"one of {trace.trips} trips of {trace.name}"
            opened = scale(longest.start_s), scale(longest.end_s), top
    return Drawing(
        width=WIDTH,
        height=top + 4,
        title="Timeline of the step",
        description=describe(timeline),
        body="".join(parts),
    )


def describe(timeline: Timeline) -> str:
    """Returns in words where the time goes."""
    trace = timeline.trace
    sums: dict[str, float] = {}
    exposed: dict[str, float] = {}
    _sum(trace, 1, timeline.over, sums, exposed)
    parts = [f"{kind} {say_time(seconds)}" for kind, seconds in sorted(sums.items(), key=lambda item: -item[1])]
    words = [f"A step takes {say_time(trace.seconds)} (predicted): {', '.join(parts) or 'nothing'}."]
    waits = [f"{name} {say_time(s)}" for name, s in sorted(exposed.items(), key=lambda item: -item[1]) if s > 0]
    words.append(f"It waits for {', '.join(waits[:6])}." if waits else "It waits for no collective.")
    return " ".join(words)


def _sum(trace: Trace, times: int, over: Mapping[str, str], sums: dict[str, float], exposed: dict[str, float]) -> None:
    for span in trace.spans:
        if span.body is not None:
            _sum(span.body, times * span.body.trips, over, sums, exposed)
        elif span.collective is None:
            sums[span.kind] = sums.get(span.kind, 0.0) + times * span.seconds
        else:
            name = over.get(span.name, span.kind)
            exposed[name] = exposed.get(name, 0.0) + times * span.exposed_s


def _strip(trace: Trace, over: Mapping[str, str], top: float, within: str) -> tuple[str, Span | None, float]:
    """Returns a strip, its longest loop, and its height."""
    x = Scale(low=0.0, high=trace.seconds or 1.0, start=_LEFT, end=WIDTH - 8)
    name = f"{within}: {say_time(trace.seconds)}" if within else f"the step: {say_time(trace.seconds)}"
    parts = [label(0, top + 12, name, class_="strong", most=110)]
    y = top + 20
    compute = [span for span in trace.spans if span.collective is None]
    lanes = _lanes([span for span in trace.spans if span.collective is not None], x)
    parts.append(label(_LEFT - 8, y + 16, "compute", class_="soft", anchor="end"))
    parts += [_work(piece, x, y) for piece in _merged(compute, x)]
    y += _LANE + _GAP
    for index, lane in enumerate(lanes):
        if index == 0:
            parts.append(label(_LEFT - 8, y + 16, "network", class_="soft", anchor="end"))
        parts += [_sent(span, x, y, over) for span in lane]
        y += _LANE + _GAP
    ticks = [(x(tick), f"{tick * 1e3:g}") for tick in x.ticks(8)]
    parts.append(tag("path", class_="axis", d=f"M{number(_LEFT)} {number(y)}H{number(WIDTH - 8)}"))
    parts.append(tag("path", class_="axis", d="".join(f"M{number(at)} {number(y)}v4" for at, _ in ticks)))
    parts += [label(at, y + 15, text, class_="small soft", anchor="middle") for at, text in ticks]
    parts.append(label(_LEFT - 8, y + 15, "ms", class_="small soft", anchor="end"))
    loops = [span for span in compute if span.kind == LOOP]
    longest = max(loops, key=lambda span: span.seconds, default=None)
    return "".join(parts), longest, y + 22 - top


def _merged(spans: Sequence[Span], x: Scale) -> list[list[Span]]:
    """Returns spans by what is drawn together: those that would be narrower than a pixel."""
    out: list[list[Span]] = []
    for span in spans:
        narrow = x(span.end_s) - x(span.start_s) < _NARROWEST
        if out and narrow and span.kind != LOOP:
            last = out[-1]
            if last[0].kind != LOOP and x(last[-1].end_s) - x(last[0].start_s) < 2 * _NARROWEST:
                last.append(span)
                continue
        out.append([span])
    return out


def _work(piece: list[Span], x: Scale, y: float) -> str:
    left, right = x(piece[0].start_s), x(piece[-1].end_s)
    width = max(right - left, 0.4)
    span = max(piece, key=lambda one: one.seconds)
    if span.kind == LOOP and span.body is not None:
        words = (
            f"{span.name}: {span.body.trips} trips of {say_time(span.body.seconds)}, {say_time(span.seconds)} in all"
        )
        text = f"loop, {span.body.trips} trips of {say_time(span.body.seconds)}"
        inside = (
            label((left + right) / 2, y + 16, text, class_="small", anchor="middle") if width > 7 * len(text) else ""
        )
        return tag(
            "g",
            said(words) + tag("rect", class_="loop", x=left, y=y, width=width, height=_LANE, rx=4) + inside,
            class_="mark",
        )
    operations = sum(one.operations for one in piece)
    seconds = sum(one.seconds for one in piece)
    several = f"{operations} operations, the longest {span.name}" if operations > 1 else span.name
    words = f"{span.kind}, {several}: {say_time(seconds)}, from {say_time(piece[0].start_s)}"
    return tag("rect", said(words), class_=f"mark {span.kind}", x=left, y=y, width=width, height=_LANE)


def _sent(span: Span, x: Scale, y: float, over: Mapping[str, str]) -> str:
    """Draws a collective: pale what runs beside compute, strong what the step waits for, at its end."""
    left, right = x(span.start_s), x(span.end_s)
    wait = x(max(span.start_s, span.end_s - span.exposed_s))
    name = over.get(span.name, span.kind)
    sent = f", {say_bytes(span.collective.operand_bytes)} a device" if span.collective is not None else ""
    words = f"{name}, {span.name}: {say_time(span.seconds)}{sent}; the step waits {say_time(span.exposed_s)} for it"
    parts = [said(words)]
    if span.exposed_s < 0.999 * span.seconds:
        parts.append(tag("rect", class_="hidden", x=left, y=y, width=max(0.4, wait - left), height=_LANE))
    if span.exposed_s > 0:
        parts.append(tag("rect", class_="talk", x=wait, y=y, width=max(0.4, right - wait), height=_LANE))
    if right - left > 6.2 * len(name):
        parts.append(label((left + right) / 2, y + 16, name, class_="small on", anchor="middle"))
    return tag("g", "".join(parts), class_="mark")


def _lanes(spans: Sequence[Span], x: Scale) -> list[list[Span]]:
    """Returns collectives in as few lanes as keep those apart that run at the same time."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.start_s):
        free = next((lane for lane in lanes if lane[-1].end_s <= span.start_s + 1e-12), None)
        if free is not None:
            free.append(span)
        elif len(lanes) < _LANES:
            lanes.append([span])
        else:
            lanes[-1].append(span)
    visible = (x.high - x.low) / (x.end - x.start) * 0.1  # what is a tenth of a pixel wide is not drawn
    return [[span for span in lane if span.seconds >= visible] for lane in lanes]


def _zoom(opened: tuple[float, float, float], top: float) -> str:
    left, right, bottom = opened
    high = number(bottom - 4)
    low = number(top + 20)
    return tag(
        "path",
        class_="zoom",
        d=f"M{number(left)} {high}L{number(right)} {high}L{number(WIDTH - 8)} {low}L{number(_LEFT)} {low}Z",
    )


def _legend(trace: Trace) -> str:
    kinds: dict[str, None] = {}
    sends = _kinds(trace, kinds)
    items: list[tuple[str, str]] = [
        (kind, kind) for kind in ("matmul", "attention", "memory", "copy", "kernel") if kind in kinds
    ]
    if sends:
        items += [("talk", "collective the step waits for"), ("hidden", "collective beside compute")]
    parts, x = [], 0.0
    for kind, name in items:
        parts.append(tag("rect", class_=kind, x=x, y=2, width=12, height=12))
        parts.append(label(x + 17, 12, name, class_="small soft"))
        x += 34 + 5.4 * len(name)
    return "".join(parts)


def _kinds(trace: Trace, kinds: dict[str, None]) -> bool:
    sends = False
    for span in trace.spans:
        if span.body is not None:
            sends |= _kinds(span.body, kinds)
        elif span.collective is not None:
            sends = True
        else:
            kinds[span.kind] = None
    return sends
