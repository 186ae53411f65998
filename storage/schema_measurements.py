"""The table of measurements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from storage.schema import Base, Digest, Json, words
from tuner.measurements import Source


class MeasurementRow(Base):
    """Timings of one step. `document` holds what was run and under what, the columns are what it is found by."""

    __tablename__ = "mw_measurements"
    __table_args__ = (Index(None, "study", "trial"), Index(None, "slice_name", "toolchain_digest"))

    id: Mapped[int] = mapped_column(primary_key=True)
    source: Mapped[Source] = mapped_column(words(Source))
    plan_id: Mapped[int | None] = mapped_column(ForeignKey("mw_plans.id", ondelete="CASCADE"), index=True)
    study: Mapped[str]
    trial: Mapped[int]
    model: Mapped[str]
    slice_name: Mapped[str] = mapped_column(String(64))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    jax: Mapped[str] = mapped_column(String(64))
    libtpu: Mapped[str] = mapped_column(String(64))
    candidate_digest: Mapped[str] = mapped_column(Digest)
    device_kind: Mapped[str] = mapped_column(String(64))
    host: Mapped[str]
    step_s: Mapped[float]
    predicted_s: Mapped[float | None]
    samples: Mapped[int]
    samples_s: Mapped[list[float]] = mapped_column(Json)
    document: Mapped[dict[str, Any]]
    observed_at: Mapped[datetime]
