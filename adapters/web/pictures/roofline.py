"""The roofline: operations per second against operations per byte of HBM, under what the chip can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.web.pictures.axes import WIDTH, Frame, Scale, plain
from adapters.web.pictures.svg import Drawing, label, line, said, tag
from adapters.web.pictures.words import say_share, say_time

MOST = 80
"""Operations that are marks; those that take less time are left out."""

_HEIGHT = 320.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operation of the step, over all its executions.

    Attributes:
        name: the instruction.
        kind: ``matmul``, ``attention``, ``memory``, ``copy`` or ``kernel``.
        flops: floating-point operations; 0 for what only moves bytes.
        bytes: read from and written to HBM.
        seconds: predicted.
    """

    name: str
    kind: str
    flops: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What the operations of a step reach on one device.

    Attributes:
        work: any number.
        peak_flops: per second.
        hbm_bytes_per_s: documented bandwidth.
    """

    work: Sequence[Work]
    peak_flops: float
    hbm_bytes_per_s: float


def draw(roofline: Roofline) -> Drawing:
    """Returns the picture: a circle for each operation that computes, its area its share of the time."""
    title = "Roofline of one device"
    total = sum(work.seconds for work in roofline.work) or 1.0
    computing = [w for w in roofline.work if w.flops > 0 and w.seconds > 0]
    computing = sorted(computing, key=lambda work: -work.seconds)[:MOST]
    ridge = roofline.peak_flops / roofline.hbm_bytes_per_s
    # An operation whose bytes stay on the chip has no end to the right; it is put at the edge.
    edge = 40 * max([ridge, *(w.flops / w.bytes for w in computing if w.bytes > 0)])
    reached = [w.flops / w.seconds for w in computing]
    x = Scale(
        low=min([ridge / 30, *(w.flops / w.bytes for w in computing if w.bytes > 0)]),
        high=edge,
        start=64,
        end=WIDTH - 12,
        log=True,
    )
    y = Scale.over([roofline.peak_flops, *reached, roofline.peak_flops / 50], _HEIGHT - 44, 34, log=True)
    ground = Frame(x=x, y=y).ground("operations per byte of HBM", "operations per second", plain, _tera)
    lowest = max(x.low, y.low / roofline.hbm_bytes_per_s)
    roof = [(lowest, lowest * roofline.hbm_bytes_per_s), (ridge, roofline.peak_flops), (x.high, roofline.peak_flops)]
    parts = [ground, tag("path", class_="roof", d=line([(x(a), y(b)) for a, b in roof]))]
    parts.append(
        label(
            x.end,
            y(roofline.peak_flops) - 6,
            f"peak {_tera(roofline.peak_flops)}FLOP/s",
            class_="small soft",
            anchor="end",
        )
    )
    for work in reversed(computing):
        intensity = work.flops / work.bytes if work.bytes > 0 else math.inf
        share = work.seconds / total
        limit = min(roofline.peak_flops, intensity * roofline.hbm_bytes_per_s)
        words = (
            f"{work.name} ({work.kind}): {say_time(work.seconds)}, {say_share(share)} of compute; "
            f"{say_share(work.flops / work.seconds / limit)} of its roof"
        )
        parts.append(
            tag(
                "circle",
                said(words),
                class_=f"mark {work.kind} blob",
                cx=x(min(intensity, edge)),
                cy=y(work.flops / work.seconds),
                r=2.5 + 22 * math.sqrt(share),
            )
        )
    rest = sum(w.seconds for w in roofline.work if w.flops <= 0)
    if rest > 0:
        parts.append(
            label(x.end, 14, f"without products, only bytes: {say_time(rest)}", class_="small soft", anchor="end")
        )
    parts.append(_legend({work.kind for work in computing}))
    flops = sum(w.flops for w in roofline.work)
    description = (
        f"{len(computing)} operations reach {say_share(flops / total / roofline.peak_flops)} of the peak of "
        f"{_tera(roofline.peak_flops)}FLOP/s in {say_time(total)} of compute."
    )
    return Drawing(width=WIDTH, height=_HEIGHT, title=title, description=description, body="".join(parts))


def _tera(value: float) -> str:
    return f"{value / 1e12:g} T"


def _legend(kinds: set[str]) -> str:
    parts, at = [], 160.0
    for kind in ("matmul", "attention", "kernel", "memory", "copy"):
        if kind in kinds:
            parts.append(tag("circle", class_=f"{kind} blob", cx=at, cy=10, r=5))
            parts.append(label(at + 9, 14, kind, class_="small soft"))
            at += 24 + 6.5 * len(kind)
    return "".join(parts)
