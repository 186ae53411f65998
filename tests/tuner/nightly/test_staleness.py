from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.storage.samples import NEW, NOON, OLD, grid, plan, study_key, workload
from tuner.nightly.staleness import Attempt, Due, Standing, standing
from tuner.plans.plan import Constraints, Evidence, Plan, PlanState, StoredPlan
from tuner.stores import Study

KEY = study_key()


def in_service(*plans: Plan) -> list[StoredPlan]:
    return [
        StoredPlan(plan=plan, id=number, version=1, state=PlanState.ACTIVE, stored_at=NOON)
        for number, plan in reversed(list(enumerate(plans, start=1)))
    ]


def study(**changes: Any) -> Study:
    return Study(**{"id": 1, "key": KEY, "created_at": NOON, "counts": {"complete": 3}} | changes)


def found(*plans: Plan, **changes: Any) -> Standing:
    arguments: dict[str, Any] = {"study": None, "last": None, "now": NOON + timedelta(days=10), "budget_s": 60.0}
    return standing(KEY, plans=in_service(*plans), **arguments | changes)


DONE = Attempt(finished=True, at=NOON)
CUT = Attempt(finished=False, at=NOON)


@pytest.mark.parametrize(
    ("plans", "changes", "due"),
    [
        ([], {}, Due.MISSING),
        ([], {"study": study(counts={})}, Due.MISSING),  # opened, and killed before anything was found
        ([plan(toolchain=OLD)], {}, Due.STALE),
        ([plan(toolchain=OLD)], {"study": study(), "last": CUT}, Due.UNFINISHED),
        ([plan()], {}, Due.OUTDATED),  # no study of this revision of space and model
        ([plan()], {"study": study(), "last": DONE}, Due.FRESH),
        ([plan()], {"study": study(proved=True)}, Due.FRESH),
        ([plan()], {"study": study(spent_s=60.0)}, Due.FRESH),
        ([plan()], {"study": study(spent_s=59.0)}, Due.UNFINISHED),  # nobody knows how it ended
        ([plan()], {"study": study(), "last": CUT}, Due.UNFINISHED),
        ([plan()], {"last": CUT}, Due.UNFINISHED),
        ([plan()], {"study": study(), "last": DONE, "refresh_s": 9 * 86400.0}, Due.AGED),
        ([plan()], {"study": study(), "last": DONE, "refresh_s": 11 * 86400.0}, Due.FRESH),
        ([plan()], {"study": study(proved=True), "refresh_s": 1.0}, Due.AGED),
        ([plan()], {"study": study(), "last": DONE, "measurable": True}, Due.UNMEASURED),
        ([plan(evidence=Evidence.MEASURED)], {"study": study(), "last": DONE, "measurable": True}, Due.FRESH),
        ([plan()], {"study": study(), "last": replace(DONE, measured=True), "measurable": True}, Due.FRESH),
        ([], {"study": study(), "last": DONE}, Due.FRESH),  # nothing runs there
    ],
)
def test_why_an_entry_is_due(plans: list[Plan], changes: dict[str, Any], due: Due) -> None:
    assert found(*plans, **changes).due is due


@pytest.mark.parametrize(
    "other",
    [
        plan(workload=workload(shape="64x64x1")),
        plan(workload=workload(revision="r9")),
        plan(slice=grid(2, 4, wrap=(False, True))),
        plan(slice=grid(4, 4)),
        plan(constraints=Constraints(reserve_hbm_bytes=1)),
    ],
)
def test_a_plan_for_something_else_counts_for_nothing(other: Plan) -> None:
    assert found(other, replace(other, toolchain=OLD)).due is Due.MISSING


def test_the_newest_plan_of_another_toolchain_is_rechecked_unless_there_is_one_of_this() -> None:
    older = replace(OLD, libtpu="0.0.30")
    stale = found(plan(toolchain=older), plan(toolchain=OLD))
    assert stale.to_recheck is not None
    assert stale.to_recheck.plan.toolchain == OLD
    assert "libtpu 0.0.42.1 is now 0.0.50.1" in stale.reason
    both = found(plan(toolchain=NEW), plan(toolchain=OLD), study=study(), last=DONE)
    assert both.active is not None
    assert both.to_recheck is None
