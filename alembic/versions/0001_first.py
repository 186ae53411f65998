"""The first schema: studies and their trials, programs by content, plans.

Revision: 0001, after none
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mw_plans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("wrap", sa.String(length=8), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("constraints_digest", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("objective", sa.String(length=64), nullable=False),
        sa.Column("reserve_hbm_bytes", sa.BigInteger(), nullable=False),
        sa.Column("jax", sa.String(length=64), nullable=False),
        sa.Column("libtpu", sa.String(length=64), nullable=False),
        sa.Column("evidence", sa.String(length=32), nullable=False),
        sa.Column("step_s", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("proved", sa.Boolean(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mw_plans"),
        sa.UniqueConstraint(
            "workload_digest",
            "slice_name",
            "wrap",
            "toolchain_digest",
            "constraints_digest",
            "version",
            name="uq_mw_plans_version",
        ),
    )
    op.create_index(
        "ix_mw_plans_lookup", "mw_plans", ["model", "slice_name", "variant", "shape", "state"], unique=False
    )
    op.create_index(
        "uq_mw_plans_active",
        "mw_plans",
        ["workload_digest", "slice_name", "wrap", "toolchain_digest", "constraints_digest"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )

    op.create_table(
        "mw_programs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("lowered_digest", sa.String(length=64), nullable=True),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("wrap", sa.String(length=8), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reject_stage", sa.String(length=32), nullable=True),
        sa.Column("reject_reason", sa.String(length=32), nullable=True),
        sa.Column("reject_detail", sa.Text(), nullable=True),
        sa.Column("reject_numbers", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_mw_programs"),
        sa.UniqueConstraint(
            "lowered_digest",
            "slice_name",
            "wrap",
            "toolchain_digest",
            name="uq_mw_programs_lowered_digest_slice_name_wrap_toolchain_digest",
        ),
    )
    op.create_table(
        "mw_screens",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("wrap", sa.String(length=8), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("candidate_digest", sa.String(length=64), nullable=False),
        sa.Column("lowered_digest", sa.String(length=64), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reject_stage", sa.String(length=32), nullable=True),
        sa.Column("reject_reason", sa.String(length=32), nullable=True),
        sa.Column("reject_detail", sa.Text(), nullable=True),
        sa.Column("reject_numbers", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("key_digest", name="pk_mw_screens"),
    )
    op.create_table(
        "mw_studies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("wrap", sa.String(length=8), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("constraints_digest", sa.String(length=64), nullable=False),
        sa.Column("evidence", sa.String(length=32), nullable=False),
        sa.Column("space_revision", sa.Text(), nullable=False),
        sa.Column("key", sa.JSON(), nullable=False),
        sa.Column("proved", sa.Boolean(), nullable=False),
        sa.Column("spent_s", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mw_studies"),
        sa.UniqueConstraint("digest", name="uq_mw_studies_digest"),
    )
    op.create_table(
        "mw_program_keys",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("program_id", sa.Integer(), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("candidate_digest", sa.String(length=64), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["program_id"], ["mw_programs.id"], name="fk_mw_program_keys_program_id_mw_programs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("key_digest", name="pk_mw_program_keys"),
    )
    op.create_index("ix_mw_program_keys_program_id", "mw_program_keys", ["program_id"], unique=False)

    op.create_table(
        "mw_refusals",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("layouts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["mw_studies.id"], name="fk_mw_refusals_study_id_mw_studies", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", "reason", name="pk_mw_refusals"),
    )
    op.create_table(
        "mw_trials",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("candidate_digest", sa.String(length=64), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("candidate", sa.JSON(), nullable=False),
        sa.Column("baseline", sa.String(length=16), nullable=False),
        sa.Column("bound_s", sa.Double(), nullable=True),
        sa.Column("estimate_s", sa.Double(), nullable=True),
        sa.Column("predicted_s", sa.Double(), nullable=True),
        sa.Column("measured_s", sa.Double(), nullable=True),
        sa.Column("numbers", sa.JSON(), nullable=False),
        sa.Column("placement", sa.JSON(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("lowered_digest", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reject_stage", sa.String(length=32), nullable=True),
        sa.Column("reject_reason", sa.String(length=32), nullable=True),
        sa.Column("reject_detail", sa.Text(), nullable=True),
        sa.Column("reject_numbers", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["study_id"], ["mw_studies.id"], name="fk_mw_trials_study_id_mw_studies", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_mw_trials"),
    )
    op.create_index("ix_mw_trials_candidate_digest", "mw_trials", ["candidate_digest"], unique=False)
    op.create_index("ix_mw_trials_study_id_state", "mw_trials", ["study_id", "state"], unique=False)


def downgrade() -> None:
    for table in (
        "mw_trials",
        "mw_refusals",
        "mw_program_keys",
        "mw_studies",
        "mw_screens",
        "mw_programs",
        "mw_plans",
    ):
        op.drop_table(table)
