"""The table of nightly runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from storage.schema import Base, words
from tuner.nightly.nights import NightState


class NightRow(Base):
    """A night; `document` is its report, which the columns are part of."""

    __tablename__ = "mw_nights"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[NightState] = mapped_column(words(NightState))
    must_look: Mapped[bool]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    document: Mapped[dict[str, Any]]
