"""Lists of plans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event

import storage
from storage.sql.database import Database
from storage.views.paging import Cursor, Sort
from storage.views.plans import SORTS, PlanFilter, list_plans, newest_toolchain, versions
from storage.views.view import database_of
from tests.storage.samples import NEW, OLD, plan, study_key, workload
from tuner.errors import InvalidValue
from tuner.plans.plan import Baseline, Evidence, PlanState
from tuner.stores import Store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with storage.open_store(url) as store:
        store.promote(plan(2.0))
        store.promote(plan(1.0), note="50.0% faster than the active plan, both predicted")
        store.promote(plan(3.0, workload=workload(model="other"), memory_bytes=None, baselines=()))
        store.promote(plan(0.5, toolchain=OLD, evidence=Evidence.MEASURED))
        broken = Baseline(name="A", layout="", step_s=None, reason="does not fit")
        store.promote(plan(0.7, workload=workload(shape="16x16x1"), baselines=(broken,)))
        store.retire(5, note="by hand")
        yield store


@pytest.fixture
def database(store: Store) -> Database:
    return database_of(store)


def test_the_active_ones_are_listed_newest_first(database: Database) -> None:
    page = list_plans(database)
    assert [line.id for line in page.rows] == [4, 3, 2]
    assert page.matching == 3
    assert [line.speedup for line in page.rows] == [pytest.approx(3.0), None, pytest.approx(1.5)]
    assert [line.id for line in list_plans(database, wanted=PlanFilter(state=None)).rows] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (PlanFilter(state=PlanState.SUPERSEDED), [1]),
        (PlanFilter(state=PlanState.RETIRED), [5]),
        (PlanFilter(evidence=Evidence.MEASURED), [4]),
        (PlanFilter(text="OTHER"), [3]),
        (PlanFilter(text="v5e-2x4"), [4, 3, 2]),
        (PlanFilter(text="%"), []),
    ],
)
def test_filters(database: Database, wanted: PlanFilter, expected: list[int]) -> None:
    page = list_plans(database, wanted=wanted)
    assert [line.id for line in page.rows] == expected
    assert page.matching == len(expected)


@pytest.mark.parametrize("name", SORTS)
def test_pages_are_the_sorted_whole(database: Database, name: str) -> None:
    for descending in (False, True):
        sort, seen, cursor = Sort(name=name, descending=descending), [], None
        whole = [line.id for line in list_plans(database, wanted=PlanFilter(state=None), sort=sort).rows]
        while True:
            page = list_plans(database, wanted=PlanFilter(state=None), sort=sort, cursor=cursor, limit=2)
            seen += [line.id for line in page.rows]
            if page.next is None:
                break
            cursor = Cursor(key=page.next)
        assert seen == whole
        assert sorted(seen) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidValue, match="legal: id, model"):
        list_plans(database, sort=Sort(name="note"))


def test_versions_of_a_key(database: Database) -> None:
    assert [(line.id, line.version, line.state) for line in versions(database, 1)] == [
        (2, 2, PlanState.ACTIVE),
        (1, 1, PlanState.SUPERSEDED),
    ]
    assert versions(database, 1) == versions(database, 2)
    assert [line.id for line in versions(database, 4)] == [4]
    assert versions(database, 99) == []


def test_the_toolchain_in_use_is_that_of_the_newest_study(store: Store, database: Database) -> None:
    assert newest_toolchain(database) is None
    store.open_study(study_key(toolchain=OLD))
    assert newest_toolchain(database) == OLD
    store.open_study(study_key(toolchain=NEW))
    assert newest_toolchain(database) == NEW


def test_lists_never_open_a_document(database: Database) -> None:
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda c, cu, text, *rest: statements.append(text))
    list_plans(database)
    versions(database, 1)
    assert len(statements) > 3
    assert not any("document" in text for text in statements)
