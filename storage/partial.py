"""Indexes over active plans: the database's own guarantee of exactly one for a key, and what lookups read.

They are apart from their table because naming the options of a dialect loads that dialect, and those of PostgreSQL are
a third of what a lookup in an SQLite file would spend on imports. Stores do not need the objects; migrations do.
"""

from __future__ import annotations

from sqlalchemy import Index, text

import storage.schema_calibration
import storage.schema_measurements
import storage.schema_nights
import storage.schema_work  # noqa: F401  their tables are of the schema too
from storage.schema import PLAN_KEY, Base
from tuner.plans.plan import PlanState

_ACTIVE = text(f"state = '{PlanState.ACTIVE.value}'")
_PLANS = Base.metadata.tables["mw_plans"]

Index(
    "uq_mw_plans_active",
    *(_PLANS.c[name] for name in PLAN_KEY),
    unique=True,
    sqlite_where=_ACTIVE,
    postgresql_where=_ACTIVE,
)

# Holds every column that the lookup ladder looks at, so that it touches no row.
Index(
    "ix_mw_plans_ladder",
    *(
        _PLANS.c[name]
        for name in (
            "model",
            "slice_name",
            "variant",
            "shape",
            "revision",
            "objective",
            "reserve_hbm_bytes",
            "evidence",
            "toolchain_digest",
            "id",
        )
    ),
    sqlite_where=_ACTIVE,
    postgresql_where=_ACTIVE,
)

METADATA = Base.metadata
"""All of our schema, these indexes included."""
