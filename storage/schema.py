"""Our tables as SQLAlchemy models. Rows never leave `storage`; `storage.sql` turns them into values of the domain.

Every table is prefixed ``mw_``, because Optuna's tables and those of other applications may live beside ours.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.types import Metric, UtcDateTime
from tuner.plans.plan import Evidence, PlanState
from tuner.rejections import RejectReason, Stage
from tuner.stores import TrialState

PLAN_KEY = ("workload_digest", "slice_name", "wrap", "toolchain_digest", "constraints_digest")
"""Columns of `PlanRow` that say what a plan is for."""

Digest = String(64)
Json = JSON(none_as_null=True)


def words(kind: type[StrEnum]) -> Enum:
    """Returns the column type of an enumeration whose values are texts."""
    # Values are only ever added, so a CHECK would cost a migration for each and guard against nothing.
    return Enum(
        kind, native_enum=False, create_constraint=False, length=32, values_callable=lambda k: [v.value for v in k]
    )


class Base(DeclarativeBase):
    """Root of the models: names for every constraint, one type for each kind of value."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {
        dict[str, Any]: Json,
        datetime: UtcDateTime,
        float: Metric,
        str: Text,
        bytes: LargeBinary,
        TrialState: words(TrialState),
        PlanState: words(PlanState),
        Evidence: words(Evidence),
        Stage: words(Stage),
        RejectReason: words(RejectReason),
    }


class Rejected:
    """Columns of a rejection; all NULL where there is none."""

    reject_stage: Mapped[Stage | None]
    reject_reason: Mapped[RejectReason | None]
    reject_detail: Mapped[str | None]
    reject_numbers: Mapped[dict[str, Any] | None]


class StudyRow(Base):
    """A study. `key` holds the parts of its key that are not columns; `changes` counts the writes to its trials."""

    __tablename__ = "mw_studies"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Digest, unique=True)
    name: Mapped[str]
    model: Mapped[str]
    shape: Mapped[str]
    variant: Mapped[str]
    revision: Mapped[str]
    slice_name: Mapped[str] = mapped_column(String(64))
    wrap: Mapped[str] = mapped_column(String(8))
    workload_digest: Mapped[str] = mapped_column(Digest)
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    constraints_digest: Mapped[str] = mapped_column(Digest)
    evidence: Mapped[Evidence]
    space_revision: Mapped[str]
    key: Mapped[dict[str, Any]]
    proved: Mapped[bool]
    spent_s: Mapped[float]
    created_at: Mapped[datetime]
    changes: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class RefusalRow(Base):
    """How many layouts of a study enumeration refused for one reason."""

    __tablename__ = "mw_refusals"

    study_id: Mapped[int] = mapped_column(ForeignKey("mw_studies.id", ondelete="CASCADE"), primary_key=True)
    reason: Mapped[str] = mapped_column(String(64), primary_key=True)
    layouts: Mapped[int]


class TrialRow(Rejected, Base):
    """A trial with every stage's numbers. Seconds are of one step; `change` is its study's count at the write."""

    __tablename__ = "mw_trials"
    __table_args__ = (
        Index(None, "study_id", "state"),
        Index(None, "candidate_digest"),
        Index(None, "study_id", "change"),
        Index(None, "study_id", "predicted_s"),
        # All that counts, histories and sorts of a study read: none of them opens a row with its documents.
        Index(
            "ix_mw_trials_view",
            "study_id",
            "state",
            "stage",
            "reject_stage",
            "reject_reason",
            "finished_at",
            "number",
            "bound_s",
            "estimate_s",
            "predicted_s",
            "measured_s",
        ),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("mw_studies.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[TrialState]
    stage: Mapped[Stage]
    candidate_digest: Mapped[str] = mapped_column(Digest)
    layout: Mapped[str]
    candidate: Mapped[dict[str, Any]]
    baseline: Mapped[str] = mapped_column(String(16))
    bound_s: Mapped[float | None]
    estimate_s: Mapped[float | None]
    predicted_s: Mapped[float | None]
    measured_s: Mapped[float | None]
    numbers: Mapped[dict[str, Any]]
    placement: Mapped[dict[str, Any] | None]
    details: Mapped[dict[str, Any]]
    lowered_digest: Mapped[str] = mapped_column(Digest)
    host: Mapped[str]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    change: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class ScreenRow(Rejected, Base):
    """What a screen found out about a content key; `body` is the compressed document, NULL if it was rejected."""

    __tablename__ = "mw_screens"

    key_digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    workload_digest: Mapped[str] = mapped_column(Digest)
    slice_name: Mapped[str] = mapped_column(String(64))
    wrap: Mapped[str] = mapped_column(String(8))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    candidate_digest: Mapped[str] = mapped_column(Digest)
    lowered_digest: Mapped[str | None] = mapped_column(Digest)
    body: Mapped[bytes | None]
    stored_at: Mapped[datetime]


class ProgramRow(Rejected, Base):
    """What the compiler made of one lowered program.

    `lowered_digest` is NULL if a candidate was rejected before it was known; such a row belongs to its key alone.
    `used_at` is when a search last took it from here, to the day; NULL if none has.
    """

    __tablename__ = "mw_programs"
    __table_args__ = (UniqueConstraint("lowered_digest", "slice_name", "wrap", "toolchain_digest"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    lowered_digest: Mapped[str | None] = mapped_column(Digest)
    slice_name: Mapped[str] = mapped_column(String(64))
    wrap: Mapped[str] = mapped_column(String(8))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    compile_s: Mapped[float | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    body: Mapped[bytes | None]
    stored_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ProgramKeyRow(Base):
    """The first level of the two-level key: a content key and the program that its candidate lowers to."""

    __tablename__ = "mw_program_keys"
    __table_args__ = (Index(None, "program_id"),)

    key_digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    program_id: Mapped[int] = mapped_column(ForeignKey("mw_programs.id", ondelete="CASCADE"))
    workload_digest: Mapped[str] = mapped_column(Digest)
    candidate_digest: Mapped[str] = mapped_column(Digest)
    stored_at: Mapped[datetime]


class PlanRow(Base):
    """One immutable version of a plan; `document` is the plan itself, the columns are what it is found by.

    `baseline_s` is the step of baseline A under the plan's evidence, NULL if that does not run.
    """

    __tablename__ = "mw_plans"

    id: Mapped[int] = mapped_column(primary_key=True)
    workload_digest: Mapped[str] = mapped_column(Digest)
    slice_name: Mapped[str] = mapped_column(String(64))
    wrap: Mapped[str] = mapped_column(String(8))
    toolchain_digest: Mapped[str] = mapped_column(Digest)
    constraints_digest: Mapped[str] = mapped_column(Digest)
    version: Mapped[int]
    state: Mapped[PlanState]
    model: Mapped[str]
    shape: Mapped[str]
    variant: Mapped[str]
    revision: Mapped[str]
    objective: Mapped[str] = mapped_column(String(64))
    reserve_hbm_bytes: Mapped[int] = mapped_column(BigInteger)
    jax: Mapped[str] = mapped_column(String(64))
    libtpu: Mapped[str] = mapped_column(String(64))
    evidence: Mapped[Evidence]
    step_s: Mapped[float]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    proved: Mapped[bool]
    study: Mapped[str]
    trial: Mapped[int]
    created_at: Mapped[datetime]
    stored_at: Mapped[datetime]
    note: Mapped[str]
    document: Mapped[dict[str, Any]]
    baseline_s: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint(*PLAN_KEY, "version", name="uq_mw_plans_version"),
        # One more, which keeps all but one active version of a key out, is in `storage.partial`.
        Index("ix_mw_plans_lookup", "model", "slice_name", "variant", "shape", "state"),
        # All that a list of plans is filtered and sorted by.
        Index(
            "ix_mw_plans_view",
            "state",
            "id",
            "toolchain_digest",
            "evidence",
            "model",
            "shape",
            "variant",
            "slice_name",
            "step_s",
            "baseline_s",
            "memory_bytes",
        ),
    )
