"""Pages by key: a page begins after, before or at a row that the reader has seen, never at an offset.

So a page costs the same wherever it lies, and rows that are written meanwhile neither repeat nor hide others. The
cursor is the row's own key; what the rows are sorted by is looked up. Rows without a value come last either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from tuner.errors import InvalidValue

Row = TypeVar("Row")

PAGE = 50
"""Rows of a page."""


class Side(StrEnum):
    """Where a page lies as seen from the cursor's row."""

    AFTER = "after"
    BEFORE = "before"
    AT = "at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A row's key and where the page lies as seen from it; `AT` begins with the row."""

    key: int
    side: Side = Side.AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """What rows are sorted by: a name of the view's `SORTS`, and the direction."""

    name: str
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """Rows in order, and the keys that the neighbouring pages are found by.

    Attributes:
        rows: at most as many as were asked for.
        previous: key for a cursor `BEFORE`; None on the first page.
        next: key for a cursor `AFTER`; None on the last page.
        matching: rows of all pages; None if they were not counted.
    """

    rows: tuple[Row, ...]
    previous: int | None = None
    next: int | None = None
    matching: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys of one page, and whether there is more on either side."""

    keys: tuple[int, ...]
    more_before: bool
    more_after: bool

    def page(self, rows: Sequence[Row], matching: int | None = None) -> Page[Row]:
        """Returns the page of these keys' rows."""
        return Page(
            rows=tuple(rows),
            previous=self.keys[0] if self.more_before and self.keys else None,
            next=self.keys[-1] if self.more_after and self.keys else None,
            matching=matching,
        )


def find_keys(
    session: Session,
    key: Any,
    value: Any,
    *,
    scope: Sequence[ColumnElement[bool]] = (),
    conditions: Sequence[ColumnElement[bool]] = (),
    descending: bool = False,
    cursor: Cursor | None = None,
    limit: int = PAGE,
) -> Keys:
    """Returns the keys of one page, in at most three statements.

    Args:
        session: to read in.
        key: unique integer column among the rows of `scope`; ties are broken by it, smallest first.
        value: what to sort by.
        scope: what the cursor's row fulfils too.
        conditions: what the rows must fulfil besides.
        descending: largest value first.
        cursor: where to begin; None is the first page.
        limit: rows at most.

    Raises InvalidValue if there is no row with the cursor's key.
    """
    wanted = select(key).where(*scope, *conditions)
    if cursor is None:
        found = _run(session, wanted, key, value, descending, backwards=False, limit=limit)
        return Keys(keys=tuple(found[:limit]), more_before=False, more_after=len(found) > limit)
    anchor = cursor.key if value is key else _anchor(session, key, value, scope, cursor)
    beyond = _beyond(key, value, anchor, cursor, descending)
    backwards = cursor.side is Side.BEFORE
    found = _run(session, wanted.where(beyond), key, value, descending, backwards=backwards, limit=limit)
    if not backwards:
        return Keys(keys=tuple(found[:limit]), more_before=True, more_after=len(found) > limit)
    if len(found) <= limit:  # fewer than a page before it: the first page, whole
        return find_keys(session, key, value, scope=scope, conditions=conditions, descending=descending, limit=limit)
    return Keys(keys=tuple(reversed(found[:limit])), more_before=True, more_after=True)


def _run(
    session: Session, wanted: Any, key: Any, value: Any, descending: bool, *, backwards: bool, limit: int
) -> list[int]:
    if value is key:
        order = [key.desc() if descending != backwards else key.asc()]
    else:
        missing = value.is_(None)
        order = [
            missing.desc() if backwards else missing,
            value.desc() if descending != backwards else value.asc(),
            key.desc() if backwards else key.asc(),
        ]
    return list(session.scalars(wanted.order_by(*order).limit(limit + 1)))


def _anchor(session: Session, key: Any, value: Any, scope: Sequence[ColumnElement[bool]], cursor: Cursor) -> Any:
    row = session.execute(select(value).where(*scope, key == cursor.key)).first()
    if row is None:
        raise InvalidValue(f"a page cannot begin at row {cursor.key}: there is none")
    return row[0]


def _beyond(key: Any, value: Any, anchor: Any, cursor: Cursor, descending: bool) -> ColumnElement[bool]:
    before = cursor.side is Side.BEFORE
    if value is key:
        if cursor.side is Side.AT:
            beyond = key <= anchor if descending else key >= anchor
        else:
            beyond = key < anchor if descending != before else key > anchor
        return beyond  # type: ignore[no-any-return]
    tie = key < cursor.key if before else key >= cursor.key if cursor.side is Side.AT else key > cursor.key
    if anchor is None:
        return or_(value.is_not(None), tie) if before else and_(value.is_(None), tie)
    further = value < anchor if descending != before else value > anchor
    rest = or_(further, and_(value == anchor, tie))
    return rest if before else or_(rest, value.is_(None))
