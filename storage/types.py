"""Column types that behave alike on SQLite and PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, Double
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time: takes aware datetimes of any zone, gives aware datetimes in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turns a time into UTC. Raises ValueError if it is naive."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} is naive; times must be aware")
        value = value.astimezone(UTC)
        # SQLite has no zones: what it stores is UTC by this rule.
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Gives the time back in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Metric(TypeDecorator[float]):
    """A double that keeps NaN and infinities.

    SQLite turns a NaN into NULL, so there it is stored as the text ``NaN``, which sorts above every number, as a NaN
    does on PostgreSQL.
    """

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[float | None], Any] | None:
        """Gives SQLite a text for NaN, past the base type, which would turn it into a NaN again."""
        if dialect.name != "sqlite":
            return super().bind_processor(dialect)
        return lambda value: "NaN" if value is not None and math.isnan(value) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:
        """Reads the text back."""
        return None if value is None else float(value)
