"""Lists of trials: what a page holds, whatever the sort, the filter and the place that it begins at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta

import pytest

import storage
from storage.sql.database import Database
from storage.views.paging import Cursor, Side, Sort
from storage.views.trials import SORTS, TrialFilter, TrialLine, all_trials, baselines, list_trials, whole_trial
from storage.views.view import SHORT, database_of
from tests.storage.samples import NOON, TOO_BIG, study_key, trial
from tuner.errors import InvalidValue, StoreError
from tuner.plans.plan import Evidence
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.stores import Store, Trial, TrialState

TRIALS = 37

INDIVISIBLE = Rejection(
    stage=Stage.ENUMERATE, reason=RejectReason.INDIVISIBLE, detail="heads 12 % 8: legal are 1, 2, 3, 4, 6, 12"
)


def made(number: int) -> Trial:
    """A trial unlike its neighbours, with values that are missing, equal, infinite and none."""
    if number % 7 == 3:
        return trial(
            number,
            state=TrialState.REJECTED,
            stage=Stage.ENUMERATE,
            rejection=INDIVISIBLE,
            bound_s=None,
            estimate_s=None,
            predicted_s=None,
            numbers={},
            placement=None,
            details={},
            baseline="",
            started_at=None,
            finished_at=None,
        )
    if number % 7 == 5:
        return trial(number, state=TrialState.REJECTED, stage=Stage.COMPILE, rejection=TOO_BIG, predicted_s=None)
    predicted_s = [0.5, 0.25 + number / 100, math.inf, math.nan][number % 4]
    return trial(
        number,
        predicted_s=predicted_s,
        measured_s=0.3 if number % 8 == 0 else None,
        numbers={"exposed_s": number % 3, "memory_bytes": float(number)} if number % 2 else {},
        host=f"host-{number % 3}",
        baseline="A" if number == 1 else "",
        finished_at=NOON + timedelta(seconds=number // 2),
    )


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with storage.open_store(url) as store:
        study = store.open_study(study_key())
        store.save_trials(study.id, [made(number) for number in range(TRIALS)])
        # Another study's trials are nobody's business here.
        other = store.open_study(study_key(space_revision="other"))
        store.save_trials(other.id, [trial(number) for number in range(5)])
        yield store


@pytest.fixture
def database(store: Store) -> Database:
    return database_of(store)


def numbers(lines: object) -> list[int]:
    return [line.number for line in lines]  # type: ignore[attr-defined]


def key(sort: Sort, line: TrialLine) -> tuple[object, ...]:
    """Sorts as the views promise: missing last, not-a-number above all numbers, ties by number."""
    value = {
        "number": line.number,
        "bound": line.bound_s,
        "estimate": line.estimate_s,
        "predicted": line.predicted_s,
        "measured": line.measured_s,
        "exposed": line.numbers.get("exposed_s"),
        "memory": line.numbers.get("memory_bytes"),
        "compile": line.numbers.get("compile_s"),
        "finished": None if line.finished_at is None else line.finished_at.timestamp(),
    }[sort.name]
    if value is None:
        return (1, 0, 0, line.number)
    nan = math.isnan(value)
    sign = -1 if sort.descending else 1
    return (0, sign * nan, 0 if nan else sign * value, line.number)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", SORTS)
def test_pages_in_either_direction_are_the_sorted_whole(database: Database, name: str, descending: bool) -> None:
    sort = Sort(name=name, descending=descending)
    whole = list_trials(database, 1, sort=sort, limit=1000)
    assert (whole.matching, whole.previous, whole.next) == (TRIALS, None, None)
    assert numbers(whole.rows) == numbers(sorted(whole.rows, key=lambda line: key(sort, line)))

    pages, cursor = [], None
    while True:
        page = list_trials(database, 1, sort=sort, cursor=cursor, limit=10)
        pages.append(page)
        if page.next is None:
            break
        cursor = Cursor(key=page.next)
    assert [number for page in pages for number in numbers(page.rows)] == numbers(whole.rows)
    assert all(page.matching == TRIALS for page in pages)

    back = list_trials(database, 1, sort=sort, cursor=Cursor(key=pages[2].rows[0].number, side=Side.BEFORE), limit=10)
    assert numbers(back.rows) == numbers(pages[1].rows)
    first = list_trials(database, 1, sort=sort, cursor=Cursor(key=back.rows[0].number, side=Side.BEFORE), limit=10)
    assert numbers(first.rows) == numbers(pages[0].rows)
    assert first.previous is None
    # From the middle of the first page backwards there is less than a page: it is the first page again.
    again = list_trials(database, 1, sort=sort, cursor=Cursor(key=pages[0].rows[4].number, side=Side.BEFORE), limit=10)
    assert (numbers(again.rows), again.next) == (numbers(pages[0].rows), pages[0].next)
    at = list_trials(database, 1, sort=sort, cursor=Cursor(key=pages[1].rows[0].number, side=Side.AT), limit=10)
    assert numbers(at.rows) == numbers(pages[1].rows)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TrialFilter(state=TrialState.REJECTED), lambda t: t.state is TrialState.REJECTED),
        (TrialFilter(stage=Stage.ENUMERATE), lambda t: t.stage is Stage.ENUMERATE),
        (TrialFilter(reason=RejectReason.HBM), lambda t: t.rejection is TOO_BIG),
        (TrialFilter(evidence=Evidence.MEASURED), lambda t: t.measured_s is not None),
        (
            TrialFilter(evidence=Evidence.PREDICTED),
            lambda t: t.measured_s is None and t.predicted_s is not None,
        ),
        (TrialFilter(evidence=Evidence.BOUND), lambda t: t.predicted_s is None and t.bound_s is not None),
        (TrialFilter(text="HOST-2"), lambda t: t.host == "host-2"),
        (TrialFilter(text="heads 12 % 8"), lambda t: t.rejection is INDIVISIBLE),
        (TrialFilter(text="block=12"), lambda t: t.number == 12),
        (TrialFilter(text="%"), lambda t: t.rejection is INDIVISIBLE),
        (TrialFilter(text="_"), lambda t: False),
        (
            TrialFilter(state=TrialState.REJECTED, reason=RejectReason.INDIVISIBLE, text="legal"),
            lambda t: t.rejection is INDIVISIBLE,
        ),
    ],
)
def test_filters(database: Database, wanted: TrialFilter, expected: object) -> None:
    chosen = [number for number in range(TRIALS) if expected(made(number))]  # type: ignore[operator]
    page = list_trials(database, 1, wanted=wanted, sort=Sort(name="number"), limit=1000)
    assert numbers(page.rows) == chosen
    assert page.matching == len(chosen)
    assert numbers(all_trials(database, 1, wanted=wanted, sort=Sort(name="number"))) == chosen


def test_a_download_is_the_whole_in_batches(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.views.trials._BATCH", 4)
    whole = list_trials(database, 1, limit=1000)
    assert tuple(numbers(all_trials(database, 1))) == tuple(numbers(whole.rows))


def test_a_page_begins_at_a_row_that_is_there(database: Database) -> None:
    with pytest.raises(InvalidValue, match="row 99"):
        list_trials(database, 1, cursor=Cursor(key=99))
    assert list_trials(database, 1, sort=Sort(name="number"), cursor=Cursor(key=99)).rows == ()
    with pytest.raises(InvalidValue, match="legal: number, bound"):
        list_trials(database, 1, sort=Sort(name="host"))


def test_rows_that_are_written_between_two_pages_neither_repeat_nor_hide_others(
    store: Store, database: Database
) -> None:
    first = list_trials(database, 1, limit=10)
    assert first.next is not None
    store.save_trials(1, [trial(TRIALS, predicted_s=0.0001, finished_at=NOON)])
    second = list_trials(database, 1, cursor=Cursor(key=first.next), limit=10)
    assert not set(numbers(first.rows)) & set(numbers(second.rows))
    assert second.matching == TRIALS + 1


def test_long_texts_are_cut_in_lists_and_whole_where_they_are_looked_at(store: Store, database: Database) -> None:
    detail = "x" * 10_000
    long = Rejection(stage=Stage.SCREEN, reason=RejectReason.LOWERING_ERROR, detail=detail)
    store.save_trials(1, [trial(0, state=TrialState.REJECTED, rejection=long, host="h" * 10_000)])
    (line,) = list_trials(database, 1, wanted=TrialFilter(reason=RejectReason.LOWERING_ERROR)).rows
    assert len(line.reject_detail) == len(line.host) == SHORT + 1
    found = whole_trial(store, 1, 0)
    assert found is not None
    assert found.rejection is not None
    assert found.rejection.detail == detail
    assert whole_trial(store, 1, 999) is None


def test_baselines_are_found_by_name(database: Database) -> None:
    assert [(line.baseline, line.number) for line in baselines(database, 1)] == [("A", 1)]
    assert {line.number for line in baselines(database, 2)} == {0, 1, 2, 3, 4}


def test_views_need_a_database() -> None:
    with storage.open_store("memory://") as store, pytest.raises(StoreError, match="views need a database"):
        database_of(store)
