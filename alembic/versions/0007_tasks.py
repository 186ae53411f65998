"""Tasks of closed studies stay, so that their Optuna studies can be rebuilt.

Revision: 0007, after 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("mw_tasks", sa.Column("open", sa.Boolean(), server_default=sa.true(), nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("mw_tasks") as batch:
        batch.drop_column("open")
