"""What devices were seen to take, and the constants that were fitted to it.

Revision: 0005, after 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mw_observations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.String(length=32), nullable=False),
        sa.Column("slice_name", sa.String(length=64), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("jax", sa.String(length=64), nullable=False),
        sa.Column("libtpu", sa.String(length=64), nullable=False),
        sa.Column("what", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("device_kind", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=False),
        sa.Column("samples_s", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mw_observations"),
    )
    op.create_index(
        "ix_mw_observations_generation_toolchain_digest",
        "mw_observations",
        ["generation", "toolchain_digest"],
        unique=False,
    )
    op.create_table(
        "mw_fits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.String(length=32), nullable=False),
        sa.Column("toolchain_digest", sa.String(length=64), nullable=False),
        sa.Column("jax", sa.String(length=64), nullable=False),
        sa.Column("libtpu", sa.String(length=64), nullable=False),
        sa.Column("calibration_digest", sa.String(length=64), nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.Column("error_before", sa.Double(), nullable=False),
        sa.Column("error_after", sa.Double(), nullable=False),
        sa.Column("observed_rows", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("fitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mw_fits"),
    )
    op.create_index(
        "ix_mw_fits_generation_toolchain_digest", "mw_fits", ["generation", "toolchain_digest"], unique=False
    )


def downgrade() -> None:
    op.drop_table("mw_fits")
    op.drop_table("mw_observations")
