"""What lists of plans and trials are filtered and sorted by, apart from documents.

Revision: 0004, after 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# A step that is no number stands as a text in the document (``Infinity``), which is no time to compare with.
_BASELINE_S = {
    "sqlite": """
        SELECT json_extract(b.value, '$.step_s') FROM json_each(document, '$.baselines') AS b
        WHERE json_extract(b.value, '$.name') = 'A' AND json_type(b.value, '$.step_s') IN ('real', 'integer') LIMIT 1
    """,
    "postgresql": """
        SELECT CAST(b.value ->> 'step_s' AS DOUBLE PRECISION) FROM json_array_elements(document -> 'baselines') AS b
        WHERE b.value ->> 'name' = 'A' AND json_typeof(b.value -> 'step_s') = 'number' LIMIT 1
    """,
}


def upgrade() -> None:
    op.add_column("mw_plans", sa.Column("baseline_s", sa.Double(), nullable=True))
    op.execute(f"UPDATE mw_plans SET baseline_s = ({_BASELINE_S[op.get_context().dialect.name]})")
    op.create_index(
        "ix_mw_plans_view",
        "mw_plans",
        [
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
        ],
        unique=False,
    )
    op.create_index("ix_mw_trials_study_id_predicted_s", "mw_trials", ["study_id", "predicted_s"], unique=False)
    op.create_index(
        "ix_mw_trials_view",
        "mw_trials",
        [
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
        ],
        unique=False,
    )


def downgrade() -> None:
    op.drop_index("ix_mw_trials_view", table_name="mw_trials")
    op.drop_index("ix_mw_trials_study_id_predicted_s", table_name="mw_trials")
    op.drop_index("ix_mw_plans_view", table_name="mw_plans")
    with op.batch_alter_table("mw_plans") as batch:
        batch.drop_column("baseline_s")
