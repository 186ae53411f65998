"""Workers: leases, open studies, candidates that broke a compiler; the order of changes, and when programs were used.

Revision: 0002, after 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mw_leases",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("claimed_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("resource", name="pk_mw_leases"),
    )
    op.create_table(
        "mw_tasks",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["mw_studies.id"], name="fk_mw_tasks_study_id_mw_studies", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", name="pk_mw_tasks"),
    )
    op.create_table(
        "mw_aborts",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("aborts", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name="pk_mw_aborts"),
    )
    op.add_column("mw_studies", sa.Column("changes", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("mw_trials", sa.Column("change", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_index("ix_mw_trials_study_id_change", "mw_trials", ["study_id", "change"], unique=False)
    op.add_column("mw_programs", sa.Column("used_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("mw_programs") as batch:
        batch.drop_column("used_at")
    op.drop_index("ix_mw_trials_study_id_change", table_name="mw_trials")
    with op.batch_alter_table("mw_trials") as batch:
        batch.drop_column("change")
    with op.batch_alter_table("mw_studies") as batch:
        batch.drop_column("changes")
    op.drop_table("mw_aborts")
    op.drop_table("mw_tasks")
    op.drop_table("mw_leases")
