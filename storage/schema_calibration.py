"""Tables of calibration: raw rows of what devices took, and fits to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from storage.schema import Base, Digest, Json


class ObservationRow(Base):
    """One timed program. `body` holds the program, its placement and its toolchain, compressed."""

    __tablename__ = "mw_observations"
    __table_args__ = (Index(None, "generation", "toolchain_digest"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    generation: Mapped[str] = mapped_column(String(32))
    slice_name: Mapped[str] = mapped_column(String(64))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    jax: Mapped[str] = mapped_column(String(64))
    libtpu: Mapped[str] = mapped_column(String(64))
    what: Mapped[str] = mapped_column(String(64))
    name: Mapped[str]
    origin: Mapped[str] = mapped_column(String(32))
    device_kind: Mapped[str] = mapped_column(String(64))
    host: Mapped[str]
    median_s: Mapped[float]
    samples_s: Mapped[list[float]] = mapped_column(Json)
    body: Mapped[bytes]
    observed_at: Mapped[datetime]


class FitRow(Base):
    """One fit; `document` holds it whole."""

    __tablename__ = "mw_fits"
    __table_args__ = (Index(None, "generation", "toolchain_digest"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    generation: Mapped[str] = mapped_column(String(32))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    jax: Mapped[str] = mapped_column(String(64))
    libtpu: Mapped[str] = mapped_column(String(64))
    calibration_digest: Mapped[str] = mapped_column(Digest)
    used: Mapped[bool]
    error_before: Mapped[float]
    error_after: Mapped[float]
    observed_rows: Mapped[int]
    document: Mapped[dict[str, Any]]
    fitted_at: Mapped[datetime]
