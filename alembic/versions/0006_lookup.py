"""An index with everything that the lookup ladder looks at.

Revision: 0006, after 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_mw_plans_ladder",
        "mw_plans",
        [
            "model",
            "slice_name",
            "variant",
            "shape",
            "revision",
            "objective",
            "reserve_hbm_bytes",
            "toolchain_digest",
            "id",
        ],
        unique=False,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )


def downgrade() -> None:
    op.drop_index("ix_mw_plans_ladder", table_name="mw_plans")
