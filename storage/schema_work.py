"""Tables of what workers share: leases, the studies that wait for hands, and candidates that broke a compiler."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, true
from sqlalchemy.orm import Mapped, mapped_column

from storage.schema import Base, Digest


class LeaseRow(Base):
    """Who works on a resource. Times are seconds since 1970 by the database's clock; a lease that ran out stays.

    They are numbers because the database itself reckons with them, which SQLite and PostgreSQL do not do alike with
    times.
    """

    __tablename__ = "mw_leases"

    resource: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    host: Mapped[str]
    claims: Mapped[int]
    claimed_s: Mapped[float]
    expires_s: Mapped[float]


class TaskRow(Base):
    """How another process builds the search of a study; workers join the open ones."""

    __tablename__ = "mw_tasks"

    study_id: Mapped[int] = mapped_column(ForeignKey("mw_studies.id", ondelete="CASCADE"), primary_key=True)
    document: Mapped[dict[str, Any]]
    published_at: Mapped[datetime]
    open: Mapped[bool] = mapped_column(server_default=true())


class AbortRow(Base):
    """How often the candidate of a content key aborted the compiler, over all workers."""

    __tablename__ = "mw_aborts"

    key_digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    aborts: Mapped[int]
    detail: Mapped[str]
    stored_at: Mapped[datetime]
