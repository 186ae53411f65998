"""Counts, histories and workers of studies, against what the trials themselves say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import event

import storage
from storage.sql.database import Database
from storage.views import history as views
from storage.views.agreement import agreement
from storage.views.history import coordinates, history, pairs
from storage.views.paging import Cursor, Sort
from storage.views.studies import count_study, find_study, head_of, list_studies, running_studies, siblings
from storage.views.view import database_of
from storage.views.workers import workers
from tests.storage.samples import NOON, TOO_BIG, study_key, trial
from tests.storage.views.test_trials import INDIVISIBLE
from tuner.errors import InvalidValue
from tuner.plans.plan import Evidence
from tuner.rejections import Stage
from tuner.stores import ContentKey, Store, Trial, TrialState


def made(number: int) -> Trial:
    """Three of ten compiled, with predictions that go up and down and sometimes are none."""
    common = {"finished_at": NOON + timedelta(seconds=(number * 7) % 50), "baseline": "", "details": {}}
    if number % 10 == 1:
        predicted_s = [*[2.0 + math.sin(number)] * 3, math.inf, math.nan][number // 10 % 5]
        return trial(number, predicted_s=predicted_s, measured_s=0.4 if number % 20 == 1 else None, **common)
    if number % 10 == 2:
        return trial(number, state=TrialState.RUNNING, stage=Stage.COMPILE, predicted_s=None, finished_at=None)
    if number % 10 == 3:
        common |= {"state": TrialState.REJECTED, "stage": Stage.COMPILE, "rejection": TOO_BIG}
        return trial(number, predicted_s=None, **common)
    if number % 10 == 4:
        return trial(number, state=TrialState.FAILED, stage=Stage.COMPILE, predicted_s=None, **common)
    return trial(number, state=TrialState.REJECTED, stage=Stage.ENUMERATE, rejection=INDIVISIBLE, predicted_s=None)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with storage.open_store(url) as store:
        study = store.open_study(study_key())
        store.save_trials(study.id, [made(number) for number in range(200)])
        store.count_refusals(study.id, {"indivisible": 3, "illegal-options": 30})
        store.open_study(study_key(space_revision="empty"))
        yield store


@pytest.fixture
def database(store: Store) -> Database:
    return database_of(store)


def test_counts_are_those_of_the_trials(store: Store, database: Database) -> None:
    counted = count_study(database, 1)
    trials = store.trials(1)
    assert counted.study.counts == Counter(t.state.value for t in trials) == store.studies()[1].counts
    assert counted.trials == 200
    assert counted.refusals == (("illegal-options", 30), ("indivisible", 3))
    assert counted.rejected(Stage.ENUMERATE) == [("indivisible", 120)]
    assert counted.rejected(Stage.COMPILE) == [("hbm", 20)]
    assert counted.reached(Stage.COMPILE) == 60
    assert counted.in_state("running") == 20
    assert sum(c.predicted for c in counted.counts) == 20
    assert sum(c.measured for c in counted.counts) == sum(t.measured_s is not None for t in trials)


def test_an_empty_study_is_counted(database: Database) -> None:
    counted = count_study(database, 2)
    assert (counted.trials, counted.refusals, counted.counts) == (0, (), ())
    assert history(database, 2, 0) == pairs(database, 2) == coordinates(database, 2) == []


def test_a_study_that_is_not_there(database: Database) -> None:
    with pytest.raises(KeyError, match="no study 9"):
        count_study(database, 9)
    assert head_of(database, 9) is None
    assert find_study(database, "nobody") is None
    assert find_study(database, study_key().name) == 1


def test_the_revision_grows_with_every_write(store: Store, database: Database) -> None:
    before = count_study(database, 1).changes
    store.save_trials(1, [trial(0)])
    assert count_study(database, 1).changes > before


def test_the_history_holds_every_improvement(store: Store, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MARKS", 4)
    compiled = [t for t in store.trials(1) if t.stage is not Stage.ENUMERATE and t.finished_at is not None]
    compiled.sort(key=lambda t: (t.finished_at, t.number))
    best, expected = math.inf, {}
    for position, one in enumerate(compiled, start=1):
        value = one.predicted_s
        if value is not None and not math.isnan(value) and (value < best or not expected):
            best, expected[one.number] = value, position
    marks = history(database, 1, 20)
    found = {mark.number: mark.compiles for mark in marks if mark.improves and not math.isnan(mark.predicted_s or 0.0)}
    assert found == expected
    places = {one.number: position for position, one in enumerate(compiled, start=1)}
    assert all(places[mark.number] == mark.compiles for mark in marks)
    assert [mark.compiles for mark in marks] == sorted(mark.compiles for mark in marks)
    assert len(marks) < 20


def test_pairs_and_coordinates_are_the_best_predicted(store: Store, database: Database) -> None:
    trials = {t.number: t for t in store.trials(1)}
    both = {n for n, t in trials.items() if t.predicted_s is not None and t.measured_s is not None}
    assert {pair.number for pair in pairs(database, 1)} == both
    found = coordinates(database, 1, limit=5)
    finite = sorted(t.predicted_s for t in trials.values() if t.predicted_s is not None and t.predicted_s < math.inf)
    assert len(finite) > 5
    assert [one.predicted_s for one in found] == finite[:5]
    assert all(one.candidate == trials[one.number].candidate.to_json() for one in found)


def test_a_history_of_measurements_goes_by_them(store: Store, database: Database) -> None:
    measured = sorted(
        (t.finished_at, t.number) for t in store.trials(1) if t.measured_s is not None and t.finished_at is not None
    )
    marks = history(database, 1, 10, Evidence.MEASURED)
    assert [(mark.finished_at, mark.number) for mark in marks] == measured
    assert [mark.improves for mark in marks] == [True] + [False] * (len(measured) - 1)
    assert all(mark.measured_s == 0.4 for mark in marks)


def test_siblings_differ_in_their_evidence_alone(store: Store, database: Database) -> None:
    assert siblings(database, 1) == []
    other = store.open_study(study_key(evidence=Evidence.MEASURED))
    assert siblings(database, 1) == [(other.id, Evidence.MEASURED)]
    assert siblings(database, other.id) == [(1, Evidence.PREDICTED)]
    assert siblings(database, 2) == []


def test_workers_are_running_trials_with_their_leases(store: Store, database: Database) -> None:
    study = count_study(database, 1).study
    newest = store.trials(1, after=191, limit=1)[0]
    content = ContentKey(
        workload_digest=study.key.workload.digest,
        slice_name=study.key.slice.name,
        wrap=study.key.slice.wrap,
        toolchain_digest=study.key.toolchain.digest,
        candidate_digest=newest.candidate.digest,
    )
    store.claim(f"compile/{content.digest}", owner="tpu-host/7/ab", ttl_s=60)
    found = {worker.number: worker for worker in workers(store, database, study)}
    assert len(found) == 20
    assert [number for number, worker in found.items() if worker.alive] == [192]
    assert (found[192].owner, found[192].host, found[192].claims) == ("tpu-host/7/ab", "tpu-host", 1)
    assert found[182].host == "worker-1"
    store.claim("worker/1/tpu-host/7/ab", owner="tpu-host/7/ab", ttl_s=60)
    store.claim("worker/1/idle/8/cd", owner="idle/8/cd", ttl_s=60)
    store.claim("worker/11/other/9/ef", owner="other/9/ef", ttl_s=60)
    store.claim("study/1", owner="idle/8/cd", ttl_s=60)
    store.claim("study/11", owner="other/9/ef", ttl_s=60)
    alive = [worker for worker in workers(store, database, study) if worker.alive]
    assert [(worker.owner, worker.number, worker.keeps) for worker in alive] == [
        ("tpu-host/7/ab", 192, False),
        ("idle/8/cd", None, True),
    ]


def test_lists_of_studies(store: Store, database: Database) -> None:
    page = list_studies(database)
    assert [(line.id, line.trials, line.running) for line in page.rows] == [(2, 0, 0), (1, 200, 20)]
    assert page.matching == 2
    assert page.rows[0].best_s is None
    predicted = [t.predicted_s for t in store.trials(1) if t.predicted_s is not None and not math.isnan(t.predicted_s)]
    assert page.rows[1].best_s == min(predicted)
    assert running_studies(database) == [(1, study_key().name, 20)]
    assert list_studies(database, text="nothing like it").rows == ()
    assert [line.id for line in list_studies(database, cursor=Cursor(key=2)).rows] == [1]
    with pytest.raises(InvalidValue, match="legal: id, name"):
        list_studies(database, sort=Sort(name="best"))


def test_views_read_columns_and_not_documents(store: Store, database: Database) -> None:
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda c, cu, text, *rest: statements.append(text))
    count_study(database, 1)
    history(database, 1, 20)
    pairs(database, 1)
    list_studies(database)
    of_trials = [text for text in statements if "mw_trials" in text]
    assert of_trials
    assert not any(word in text for text in of_trials for word in ("candidate", "details", "placement", ".numbers"))


def test_agreement() -> None:
    assert agreement([]) is None
    assert agreement([(1.0, 2.0), (math.nan, 1.0)]) is None
    same = agreement([(1.0, 2.0), (2.0, 3.0), (3.0, 3.5)])
    assert same is not None
    assert same.rank == pytest.approx(1.0)
    assert same.median_error == pytest.approx(1 / 3)
    turned = agreement([(3.0, 1.0), (2.0, 2.0), (1.0, 3.0)])
    assert turned is not None
    assert turned.rank == pytest.approx(-1.0)
    tied = agreement([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (2.0, 4.0)])
    assert tied is not None
    assert tied.rank == pytest.approx(2 / math.sqrt(5))  # ranks 1.5, 1.5, 3.5, 3.5 against 1 to 4
    flat = agreement([(1.0, 1.0), (1.0, 2.0)])
    assert flat is not None
    assert flat.rank is None
