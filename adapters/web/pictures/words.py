"""Quantities in words, with their units."""

from __future__ import annotations

import math


def say_time(seconds: float | None) -> str:
    """Returns milliseconds, microseconds where there are few, ``∞``, and a dash for what is not known.

    >>> say_time(0.0123), say_time(1.2e-5), say_time(float("inf")), say_time(None)
    ('12.3 ms', '12.0 µs', '∞', '—')
    """
    if seconds is None or math.isnan(seconds):
        return "—"
    if math.isinf(seconds):
        return "∞" if seconds > 0 else "-∞"
    return f"{seconds * 1e6:.1f} µs" if 0 < abs(seconds) < 1e-3 else f"{seconds * 1e3:.1f} ms"


def say_share(share: float) -> str:
    """Returns percent.

    >>> say_share(0.256), say_share(0.0123)
    ('26 %', '1.2 %')
    """
    if not math.isfinite(share):
        return "all"
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def say_bytes(count: float) -> str:
    """Returns GiB, MiB or bytes.

    >>> say_bytes(3 << 30), say_bytes(5 << 19), say_bytes(12)
    ('3.00 GiB', '2.5 MiB', '12 B')
    """
    if count >= 1 << 30:
        return f"{count / (1 << 30):.2f} GiB"
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 16 else f"{count:.0f} B"
