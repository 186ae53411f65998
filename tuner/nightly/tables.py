"""Reading a table of a TOML file with errors that name the key, the value and what would be legal."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tuner.errors import InvalidValue, UnknownName
from tuner.units import parse_bytes, parse_seconds

T = TypeVar("T")
D = TypeVar("D")


class Table:
    """One table; every key is taken once, and `finish` refuses what is left."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise InvalidValue(f"{where} = {_shown(values)}: legal is a table")
        self.where = where
        self._values = dict(values)
        self._known: list[str] = []

    def take(self, key: str, read: Callable[[Any], T], default: D) -> T | D:
        """Returns what `read` makes of a key's value, or the default. Raises InvalidValue with key and value."""
        self._known.append(key)
        if key not in self._values:
            return default
        return at(f"{self.where}{'.' if self.where else ''}{key}", self._values.pop(key), read)

    def finish(self) -> None:
        """Raises InvalidValue if there is a key that nothing took."""
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            place = f"{self.where}.{key}" if self.where else key
            raise InvalidValue(f"unknown key {place}: {hint}legal here: {', '.join(self._known)}")


def at(where: str, value: Any, read: Callable[[Any], T]) -> T:
    """Returns what `read` makes of a value. Raises InvalidValue that says where the value stands."""
    try:
        return read(value)
    except UnknownName as error:
        near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
        raise InvalidValue(f"{where} = {_shown(value)}: {error}{near}") from error
    except InvalidValue as error:
        raise InvalidValue(f"{where} = {_shown(value)}: {error}") from error


def text(value: Any) -> str:
    """Reads a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidValue("legal is a text that is not empty")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """Reads a list of texts; a single text is a list of one."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(item, str) and item for item in values):
        raise InvalidValue("legal is a list of texts, with at least one")
    repeated = sorted({item for item in values if values.count(item) > 1})
    if repeated:
        raise InvalidValue(f"{', '.join(repeated)} is there more than once")
    return tuple(values)


def flag(value: Any) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise InvalidValue("legal is true or false")
    return value


def whole(least: int, most: int | None = None) -> Callable[[Any], int]:
    """Returns a reader of whole numbers from `least` to `most`."""

    def read(value: Any) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise InvalidValue(f"legal is a whole number from {least}" + ("" if most is None else f" to {most}"))
        return value

    return read


def share(value: Any) -> float:
    """Reads a share from 0 up to, but not including, 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InvalidValue("legal is a share of at least 0 and less than 1, such as 0.02")
    return float(value)


def seconds(value: Any) -> float:
    """Reads a time of more than 0 as seconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue("legal is a time such as '10min'")
    found = parse_seconds(value)
    if found <= 0:
        raise InvalidValue("legal is a time of more than 0")
    return found


def count_bytes(value: Any) -> int:
    """Reads a size as bytes."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidValue("legal is a size such as '2GiB'")
    return parse_bytes(value)


def one_of(names: Iterable[str]) -> Callable[[Any], str]:
    """Returns a reader of one of these words."""
    legal = tuple(names)

    def read(value: Any) -> str:
        if value not in legal:
            raise InvalidValue(f"legal: {', '.join(legal)}")
        return str(value)

    return read


def _shown(value: Any) -> str:
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
