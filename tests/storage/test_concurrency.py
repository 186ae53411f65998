from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError

import storage
from storage import engines, migrations, revision
from storage.engines import make_engine, writing
from storage.urls import parse
from tests.storage.contracts import query
from tests.storage.processes import together
from tests.storage.samples import content_key, plan, screened, study_key, trial
from tuner.errors import StoreError
from tuner.plans.lookup import Rung
from tuner.plans.plan import PlanState

WORKERS, WRITES = 8, 20


def test_workers_lose_no_update_and_see_no_error(url: str) -> None:
    """Every write here reads first: a version after the latest, a sum, a first outcome that stays."""
    together(
        WORKERS,
        """
        import storage
        from tests.storage.samples import compiled, content_key, plan, study_key, trial
        from tuner.plans.lookup import Query
        query = Query(model="wan2.1-t2v-1.3b", shape="832x480x81", slice_name="v5e-2x4")
        store = storage.open_store(args[0])
        """,
        f"""
        study = store.open_study(study_key())
        for number in range({WRITES}):
            store.save_trials(study.id, [trial(me * {WRITES} + number)])
            store.close_run(study.id, proved=False, spent_s=1.0)
            store.promote(plan(1.0 + me))
            store.save_compiled(content_key(str(number)), "ab" * 32, compiled(me))
            assert store.lookup(query).plan is not None
        store.close()
        """,
        url,
    )
    with storage.open_store(url) as store:
        (study,) = store.studies()
        assert study.spent_s == WORKERS * WRITES
        assert [found.number for found in store.trials(study.id)] == list(range(WORKERS * WRITES))
        plans = store.plans(active_only=False)
        assert sorted(stored.version for stored in plans) == list(range(1, WORKERS * WRITES + 1))
        assert Counter(stored.state for stored in plans) == {
            PlanState.ACTIVE: 1,
            PlanState.SUPERSEDED: WORKERS * WRITES - 1,
        }
        assert len({str(store.compiled(content_key(str(number)))) for number in range(WRITES)}) == 1


def test_workers_that_start_on_an_empty_database(empty_url: str) -> None:
    outputs = together(
        10,
        "import storage, optuna, alembic.command, storage.migrations",
        """
        storage.migrations.init(args[0])
        with storage.open_store(args[0], create=True) as store:
            assert store.plans() == []
        optuna_storage = storage.optuna_storage(args[0])
        assert optuna_storage.get_all_studies() == []
        optuna_storage.engine.dispose()
        print(storage.migrations.current(args[0]))
        """,
        empty_url,
    )
    assert outputs == [f"{revision.HEAD}\n"] * 10
    assert migrations.check(empty_url) == []


def test_the_database_itself_allows_one_active_plan_only(url: str) -> None:
    with storage.open_store(url) as store:
        stored = store.promote(plan())
        store.promote(plan())
    engine = make_engine(parse(url))
    try:
        with pytest.raises(IntegrityError), writing(engine).begin() as connection:
            connection.exec_driver_sql(f"UPDATE mw_plans SET state = 'active' WHERE id = {stored.id}")
    finally:
        engine.dispose()


def test_a_failed_transaction_leaves_nothing_behind(url: str) -> None:
    with storage.open_store(url) as store:
        study = store.open_study(study_key())
        for _ in range(20):
            with pytest.raises(StoreError):
                store.save_trials(study.id, [trial(0), trial(1, baseline=None)])
        assert list(store.trials(study.id)) == []
        store.save_trials(study.id, [trial(0)])
        assert list(store.trials(study.id)) == [trial(0)]


def test_a_writer_blocks_no_reader_and_the_next_writer_waits(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_S", 0.05)
    with storage.open_store(sqlite_url) as store:
        store.promote(plan())
        blocker = sqlite3.connect(parse(sqlite_url).database or "", isolation_level=None)
        try:
            blocker.execute("BEGIN IMMEDIATE")
            assert store.lookup(query()).rung is Rung.EXACT
            with pytest.raises(StoreError, match=r"meshwright\.db was locked .* use PostgreSQL"):
                store.promote(plan())
            blocker.execute("COMMIT")
        finally:
            blocker.close()
        assert store.promote(plan()).version == 2


def test_a_reader_blocks_no_writer(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_S", 0.05)
    engine = make_engine(parse(sqlite_url))
    try:
        with engine.connect() as reader, storage.open_store(sqlite_url) as store:
            assert reader.exec_driver_sql("SELECT count(*) FROM mw_plans").scalar() == 0
            store.promote(plan())
            assert reader.exec_driver_sql("SELECT count(*) FROM mw_plans").scalar() == 0
    finally:
        engine.dispose()


def test_a_store_keeps_few_connections_and_gives_them_back(
    migrated_postgres: str, request: pytest.FixtureRequest
) -> None:
    def connections() -> int:
        with psycopg.connect(migrated_postgres) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = 'migrated' AND pid <> pg_backend_pid()"
            ).fetchone()
            assert row is not None
            return int(row[0])

    before = connections()
    with storage.open_store(migrated_postgres) as store:
        for _ in range(50):
            store.lookup(query())
            store.screened([content_key()])
        assert connections() == before + 1
    assert connections() == before


def test_a_damaged_body_is_an_error_that_says_so(sqlite_url: str) -> None:
    with storage.open_store(sqlite_url) as store:
        store.save_screened({content_key(): screened()})
        with sqlite3.connect(Path(parse(sqlite_url).database or "")) as connection:
            connection.execute("UPDATE mw_screens SET body = x'00'")
        connection.close()
        with pytest.raises(StoreError, match="damaged"):
            store.screened([content_key()])
