"""Times and sizes as people write them: ``90s``, ``10min``, ``2GiB``. One grammar for options, settings and files."""

from __future__ import annotations

import re

from tuner.errors import InvalidValue

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|KB|MB|GB)?", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str | int) -> int:
    """Returns bytes of a size such as ``2GiB``; a bare number is bytes. Raises InvalidValue naming what is legal."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise InvalidValue(f"{text!r} is not a size; legal: a number with B, KiB, MiB, GiB, KB, MB or GB")
    return int(float(match[1]) * _BYTES[(match[2] or "").lower()])


def parse_seconds(text: str | float) -> float:
    """Returns seconds of a time such as ``10min``; a bare number is seconds. Raises InvalidValue as `parse_bytes`."""
    match = _TIME.fullmatch(str(text).strip())
    if match is None:
        raise InvalidValue(f"{text!r} is not a time; legal: a number with ms, s, min, h or d")
    return float(match[1]) * _SECONDS[(match[2] or "").lower()]


def spell_seconds(seconds: float) -> str:
    """Returns a time as people write it: ``4.2 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
