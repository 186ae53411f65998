from __future__ import annotations

from datetime import timedelta

from tests.storage.samples import study_key
from tests.tuner.nightly.desk import NIGHT, Clock, entry
from tests.tuner.plans.samples import make_plan, stored
from tuner.nightly.budgets import Budgets
from tuner.nightly.order import Task, rechecks, searches
from tuner.nightly.staleness import Attempt, Due, Standing


def task(name: str, due: Due, *, priority: int = 0, hours_ago: float | None = None, former: bool = False) -> Task:
    last = None if hours_ago is None else Attempt(finished=True, at=NIGHT - timedelta(hours=hours_ago))
    standing = Standing(due=due, reason="", last=last, former=stored(make_plan()) if former else None)
    return Task(entry=entry(name, priority=priority), key=study_key(), standing=standing)


def named(tasks: object) -> str:
    return "".join(task.entry.spec.model for task in tasks)  # type: ignore[attr-defined]


def test_priority_then_urgency_then_who_waited_longest_then_the_file() -> None:
    tasks = [
        task("a", Due.AGED, hours_ago=1),
        task("b", Due.AGED, hours_ago=9),
        task("c", Due.FRESH),
        task("d", Due.STALE),
        task("e", Due.MISSING),
        task("f", Due.UNFINISHED, hours_ago=1),
        task("g", Due.OUTDATED),
        task("h", Due.AGED, priority=1),
        task("i", Due.MISSING),
        task("j", Due.STALE),
    ]
    assert named(searches(tasks)) == "hfeidjgba"
    assert named(searches(tasks, {tasks[9].entry.name})) == "hfeijdgba"


def test_only_what_another_toolchain_made_is_rechecked() -> None:
    tasks = [task("a", Due.STALE, former=True), task("b", Due.MISSING), task("c", Due.STALE, former=True, priority=2)]
    assert named(rechecks(tasks)) == "ca"
    active = Standing(due=Due.OUTDATED, reason="", active=stored(make_plan()), former=stored(make_plan()))
    assert active.to_recheck is None


def test_budgets_never_go_below_nothing() -> None:
    clock = Clock()
    budgets = Budgets(wall_s=100.0, device_s=10.0, clock=clock, started=0.0)
    assert (budgets.wall_for(60.0), budgets.device_for(None), budgets.device_for(3.0)) == (60.0, 10.0, 3.0)
    clock.s, budgets.device_spent_s = 70.0, 8.0
    assert (budgets.wall_for(60.0), budgets.device_for(3.0), budgets.spent) == (30.0, 2.0, False)
    clock.s, budgets.device_spent_s = 170.0, 18.0
    assert (budgets.wall_left_s, budgets.device_left_s, budgets.spent) == (0.0, 0.0, True)
    endless = Budgets(wall_s=None, device_s=None, clock=clock, started=0.0)
    assert (endless.wall_for(60.0), endless.device_for(None), endless.spent) == (60.0, None, False)
