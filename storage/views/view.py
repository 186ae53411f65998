"""What the views share: the database behind a store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, String, cast, func, or_

from storage.sql.database import Database
from storage.sql.store import SqlStore
from tuner.errors import StoreError
from tuner.stores import Store

SHORT = 240
"""Characters of a text that lists carry; whatever is longer is read whole where it is looked at alone."""


def database_of(store: Store) -> Database:
    """Returns the database behind a store. Raises StoreError if it is in none."""
    if not isinstance(store, SqlStore):
        raise StoreError("views need a database: open the store of an sqlite:/// or postgresql:// URL")
    return store.database


def short(column: Any) -> ColumnElement[str]:
    """Returns the beginning of a text, one character longer than `SHORT` if there is more."""
    return func.substr(column, 1, SHORT + 1)


def contains(text: str, *columns: Any) -> ColumnElement[bool]:
    """Returns whether any of some columns holds a text, whatever its case; no character of it is special."""
    return or_(*(cast(column, String).icontains(text, autoescape=True) for column in columns))
