"""What devices took, and the evidence of plans in what the lookup ladder looks at.

Revision: 0008, after 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LADDER = ("model", "slice_name", "variant", "shape", "revision", "objective", "reserve_hbm_bytes")


def upgrade() -> None:
    op.create_table(
        "mw_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("plan_id", sa.Integer(), nullable=True),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("jax", sa.String(length=64), nullable=False),
        sa.Column("libtpu", sa.String(length=64), nullable=False),
        sa.Column("candidate_digest", sa.String(length=64), nullable=False),
        sa.Column("device_kind", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("step_s", sa.Double(), nullable=False),
        sa.Column("predicted_s", sa.Double(), nullable=True),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("samples_s", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("document", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["mw_plans.id"], name="fk_mw_measurements_plan_id_mw_plans", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_mw_measurements"),
    )
    op.create_index("ix_mw_measurements_plan_id", "mw_measurements", ["plan_id"])
    op.create_index("ix_mw_measurements_study_trial", "mw_measurements", ["study", "trial"])
    op.create_index(
        "ix_mw_measurements_slice_name_toolchain_digest", "mw_measurements", ["slice_name", "toolchain_digest"]
    )
    op.drop_index("ix_mw_plans_ladder", table_name="mw_plans")
    _ladder("evidence")


def downgrade() -> None:
    op.drop_index("ix_mw_plans_ladder", table_name="mw_plans")
    _ladder()
    op.drop_table("mw_measurements")


def _ladder(*further: str) -> None:
    op.create_index(
        "ix_mw_plans_ladder",
        "mw_plans",
        [*_LADDER, *further, "toolchain_digest", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
