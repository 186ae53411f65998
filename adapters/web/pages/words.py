"""How values are written on pages: numbers with their units, what is missing, and texts that nobody vouches for."""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime

MISSING = "\N{EM DASH}"
INFINITE = "\N{INFINITY}"

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
_UNSEEN_BUT_LINES = re.compile(_UNSEEN.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def number(value: float | None, digits: int = 1) -> str:
    """Returns a number with so many decimals; a dash for what is missing or no number, a sign for what is infinite."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return INFINITE if value > 0 else f"\N{MINUS SIGN}{INFINITE}"
    if abs(value) >= 1e15:
        return f"{value:.3e}"
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def ms(seconds: float | None) -> str:
    """Returns milliseconds with one decimal, without the unit."""
    return number(None if seconds is None else seconds * 1e3)


def us(seconds: float | None) -> str:
    """Returns microseconds without decimals and without the unit."""
    return number(None if seconds is None else seconds * 1e6, 0)


def gib(count: float | None) -> str:
    """Returns GiB with two decimals, without the unit."""
    return number(None if count is None else count / 2**30, 2)


def mb(count: float | None) -> str:
    """Returns megabytes with two decimals, without the unit."""
    return number(None if count is None else count / 1e6, 2)


def times(ratio: float | None) -> str:
    """Returns a ratio as ``1.13x``."""
    shown = number(ratio, 2)
    return shown if shown == MISSING else f"{shown}\N{MULTIPLICATION SIGN}"


def percent(share: float | None) -> str:
    """Returns a share of 1 as ``12 %``."""
    shown = number(None if share is None else share * 100, 0)
    return shown if shown == MISSING else f"{shown}\N{NO-BREAK SPACE}%"


def count(value: int | None) -> str:
    """Returns a whole number with its thousands apart."""
    return MISSING if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """Returns a time that something took, for people: ``12.3 s``, ``4 min``, ``3.2 h``, ``5 d``."""
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    for limit, unit, digits in ((100, 1, 1), (5400, 60, 0), (172_800, 3600, 1)):
        if abs(seconds) < limit:
            name = {1: "s", 60: "min", 3600: "h"}[unit]
            return f"{number(seconds / unit, digits)}\N{NO-BREAK SPACE}{name}"
    return f"{number(seconds / 86_400, 0)}\N{NO-BREAK SPACE}d"


def moment(at: datetime | None) -> str:
    """Returns a time in UTC to the minute."""
    return MISSING if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def age(at: datetime | None, now: datetime | None = None) -> str:
    """Returns how long ago something was, in whole minutes, hours or days, so that it does not change all the time."""
    if at is None:
        return MISSING
    seconds = max(0.0, ((now or datetime.now(UTC)) - at).total_seconds())
    for limit, unit, name in ((5400, 60, "min"), (172_800, 3600, "h"), (math.inf, 86_400, "d")):
        if seconds < limit:
            return f"{seconds // unit:,.0f}\N{NO-BREAK SPACE}{name}"
    return MISSING


def quantity(name: str, value: float | None) -> tuple[str, str]:
    """Returns (text, unit) of a number whose name ends in its unit, as the stages' numbers do."""
    if name.endswith("_s"):
        if (value is not None and math.isfinite(value) and abs(value) >= 10) or name == "compile_s":
            return number(value), "s"
        return ms(value), "ms"
    if name.endswith("_bytes"):
        return gib(value), "GiB"
    whole = value is not None and math.isfinite(value) and value == int(value)
    return number(value, 0 if whole else 4), ""


def visible(text: object, *, lines: bool = False) -> str:
    """Returns a text with every character that is not seen, or turns others around, written out.

    Controls become their pictures, direction marks and other invisible characters their code points. With `lines`, line
    ends stay.
    """
    return (_UNSEEN_BUT_LINES if lines else _UNSEEN).sub(_seen, str(text))


def _seen(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    name = unicodedata.name(match.group(), "")
    shown = f"U+{code:04X} {name}".rstrip()
    return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}{shown}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"


def shortened(text: object, limit: int = 110) -> str:
    """Returns the beginning of a visible text, with an ellipsis if there is more."""
    whole = str(text)
    seen = visible(whole[: limit + 1])
    return seen if len(seen) <= limit else seen[: limit - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
