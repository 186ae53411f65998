"""Pictures made of bars: the funnel, importance of parameters, memory against capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.web.pictures.axes import WIDTH
from adapters.web.pictures.svg import Drawing, label, number, said, tag
from adapters.web.pictures.words import say_bytes, say_share

_LEFT, _RIGHT = 96.0, WIDTH - 8
_ROW = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelStage:
    """One stage of the funnel.

    Attributes:
        name: for example ``screen``.
        entered: layouts or candidates that it looked at.
        rejected: (reason, how many), the most frequent first.
        open: how many wait in it or run.
    """

    name: str
    entered: int
    rejected: Sequence[tuple[str, int]] = ()
    open: int = 0

    @property
    def passed(self) -> int:
        """What it let through."""
        return max(0, self.entered - self.open - sum(count for _, count in self.rejected))


def funnel(stages: Sequence[FunnelStage]) -> Drawing:
    """Returns the funnel: a bar for each stage, what it let through, what waits, and what it rejected by reason."""
    most = max((stage.entered for stage in stages), default=0)
    parts: list[str] = []
    for index, stage in enumerate(stages):
        parts += _stage(stage, 8 + index * _ROW, most)
    words = [
        f"{stage.name}: {stage.entered} looked at, {stage.passed} let through"
        + (f", {stage.open} open" if stage.open else "")
        + "".join(f", {count} {reason}" for reason, count in stage.rejected)
        for stage in stages
    ]
    return Drawing(
        width=WIDTH,
        height=8 + len(stages) * _ROW,
        title="The funnel: what each stage let through and rejected",
        description="; ".join(words) + "." if words else "Nothing was looked at.",
        body="".join(parts),
    )


def _stage(stage: FunnelStage, top: float, most: int) -> list[str]:
    parts = [label(0, top + 14, stage.name, class_="strong", most=14)]
    if not stage.entered:
        return [*parts, label(_LEFT, top + 14, "nothing", class_="soft")]
    # Square roots keep a stage of six beside one of thousands in sight; the figures say how many.
    length = max(3.0, math.sqrt(stage.entered / most) * (_RIGHT - _LEFT - 60))
    pieces = [("pass", "let through", stage.passed), ("pending", "open", stage.open)]
    pieces += [("stop", reason, count) for reason, count in stage.rejected]
    at = _LEFT
    for kind, name, count in pieces:
        if count <= 0:
            continue
        width = length * count / stage.entered
        bar = tag(
            "rect", said(f"{stage.name}: {count} {name}"), class_=f"mark {kind}", x=at, y=top, width=width, height=18
        )
        parts.append(bar)
        at += width
    parts.append(label(at + 6, top + 14, f"{stage.entered:,}", class_="strong"))
    reasons = [f"{stage.passed:,} let through"] + ([f"{stage.open:,} open"] if stage.open else [])
    reasons += [f"{count:,} {reason}" for reason, count in stage.rejected]
    return [*parts, label(_LEFT, top + 30, " · ".join(reasons), class_="small soft", most=86)]


def importance(shares: Sequence[tuple[str, float]], *, method: str = "") -> Drawing:
    """Returns a bar for each parameter by its share of what decides the step time, the largest first.

    Args:
        shares: (parameter, share from 0 to 1); what is not finite is left out.
        method: how they were found, for the title.
    """
    known = sorted(((name, share) for name, share in shares if math.isfinite(share)), key=lambda item: -item[1])
    title = "Importance of parameters" + (f" ({method})" if method else "")
    if not known:
        why = "Too few trials to tell parameters apart."
        body = label(WIDTH / 2, 40, why, class_="soft", anchor="middle")
        return Drawing(width=WIDTH, height=72, title=title, description=why, body=body, live=False)
    most = max(share for _, share in known) or 1.0
    left, parts = 190.0, []
    for index, (name, share) in enumerate(known):
        y = 4 + index * 24
        width = max(1.0, share / most * (WIDTH - left - 60))
        parts.append(label(left - 8, y + 14, name, anchor="end", most=28))
        parts.append(
            tag("rect", said(f"{name}: {say_share(share)}"), class_="mark bar", x=left, y=y, width=width, height=18)
        )
        parts.append(label(left + width + 6, y + 14, say_share(share), class_="soft"))
    return Drawing(
        width=WIDTH,
        height=8 + 24 * len(known),
        title=title,
        description="; ".join(f"{name} {say_share(share)}" for name, share in known) + ".",
        body="".join(parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """What one device holds at the peak. None is not known, which is never 0.

    Attributes:
        parts: (name, bytes), for example arguments, outputs, temporaries, code; outputs without what aliases arguments.
        capacity_bytes: what a program may use.
        reserve_bytes: kept free of it for others.
    """

    parts: Sequence[tuple[str, int]] | None
    capacity_bytes: int
    reserve_bytes: int = 0


_KINDS = ("matmul", "attention", "memory", "copy", "kernel", "talk")


def memory(held: MemoryParts) -> Drawing:
    """Returns memory by part against capacity."""
    title = "Memory of one device at the peak"
    total = sum(count for _, count in held.parts or ())
    full = max(total, held.capacity_bytes) or 1
    scale = (WIDTH - 16) / full
    parts = []
    at = 0.0
    for index, (name, count) in enumerate(held.parts or ()):
        width = count * scale
        kind = _KINDS[index % len(_KINDS)]
        if width > 0:
            words = said(f"{name}: {say_bytes(count)}")
            parts.append(tag("rect", words, class_=f"mark {kind}", x=at, y=22, width=max(1.0, width), height=28))
        at += width
    free = held.capacity_bytes - held.reserve_bytes
    end = held.capacity_bytes * scale
    parts.append(tag("rect", class_="spare", x=0, y=22, width=end, height=28))
    if held.reserve_bytes:
        words = said(f"kept free for others: {say_bytes(held.reserve_bytes)}")
        parts.append(tag("rect", words, class_="mark band", x=free * scale, y=22, width=end - free * scale, height=28))
    parts.append(tag("path", class_="capacity", d=f"M{number(free * scale)} 16v40"))
    parts.append(
        label(min(free * scale, WIDTH - 4), 12, f"capacity {say_bytes(free)}", class_="bad small", anchor="end")
    )
    known = held.parts is not None
    says = f"{say_bytes(total)} held, {say_share(total / free) if free > 0 else '—'}" if known else "Not known"
    over = " bad" if total > free else ""
    parts.append(label(0, 12, says if known else "not known: the compiler did not say", class_=f"strong{over}"))
    legend, height = _memory_legend(held, total)
    return Drawing(
        width=WIDTH,
        height=64 + height,
        title=title,
        description=f"{says} of {say_bytes(free)}. "
        + "; ".join(f"{name} {say_bytes(count)}" for name, count in held.parts or ()),
        body="".join(parts) + legend,
    )


def _memory_legend(held: MemoryParts, total: int) -> tuple[str, float]:
    parts, x, y = [], 0.0, 66.0
    for index, (name, count) in enumerate(held.parts or ()):
        text = f"{name} {say_bytes(count)}"
        width = 24 + 7.0 * len(text)
        if x and x + width > WIDTH:
            x, y = 0.0, y + 20
        parts.append(tag("rect", class_=_KINDS[index % len(_KINDS)], x=x, y=y, width=12, height=12))
        parts.append(label(x + 17, y + 10, text, class_="small"))
        x += width
    return "".join(parts), (y - 66 + 20 if total else 0.0)
