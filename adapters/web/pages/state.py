"""The state of a page as its URL holds it: filters, the sort, the cursor."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from starlette.datastructures import QueryParams

from storage.views.paging import Cursor, Side, Sort
from tuner.errors import InvalidValue

Word = TypeVar("Word", bound=StrEnum)

MOST_TEXT = 200
_LARGEST = 2**31 - 1


def read_word(query: QueryParams, name: str, kind: type[Word]) -> Word | None:
    """Returns the word of an enumeration that the query names, or None. Raises InvalidValue naming the legal ones."""
    value = query.get(name, "")
    if not value:
        return None
    try:
        return kind(value)
    except ValueError:
        legal = ", ".join(member.value for member in kind)
        raise InvalidValue(f"{name}={value[:40]!r} is not known; legal: {legal}") from None


def read_text(query: QueryParams, name: str = "text") -> str:
    """Returns a text to search for, without the blanks around it. Raises InvalidValue if it is too long."""
    text = query.get(name, "").replace("\0", "").strip()
    if len(text) > MOST_TEXT:
        raise InvalidValue(f"{name} has {len(text)} characters; at most {MOST_TEXT} are searched for")
    return text


def read_sort(query: QueryParams, legal: Mapping[str, Any], default: Sort) -> Sort:
    """Returns the sort: a name, with a ``-`` before it for the largest first. Raises InvalidValue if it is unknown."""
    value = query.get("sort", "")
    if not value:
        return default
    name = value.removeprefix("-")
    if name not in legal:
        raise InvalidValue(f"sort={value[:40]!r} is not known; legal, with or without '-': {', '.join(legal)}")
    return Sort(name=name, descending=value.startswith("-"))


def write_sort(sort: Sort, default: Sort) -> str:
    """Returns what the URL says of a sort; nothing for the default."""
    return "" if sort == default else f"{'-' if sort.descending else ''}{sort.name}"


def read_cursor(query: QueryParams) -> Cursor | None:
    """Returns where the page begins, or None for the first one. Raises InvalidValue if it is no whole number."""
    for side in Side:
        value = query.get(side.value, "").strip()
        if value:
            return Cursor(key=read_number(side.value, value), side=side)
    return None


def read_number(name: str, value: str) -> int:
    """Returns a whole number from 0. Raises InvalidValue if it is none."""
    if not (value.isascii() and value.isdigit()) or int(value[:11]) > _LARGEST:
        raise InvalidValue(f"{name}={value[:40]!r} is no whole number from 0 to {_LARGEST}")
    return int(value)
