from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

import storage
from storage.sql import patience
from storage.sql.store import SqlStore
from storage.urls import parse
from tests.storage.samples import plan, study_key, trial
from tuner.errors import StoreError


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def store(migrated_postgres: str, request: pytest.FixtureRequest) -> Iterator[SqlStore]:
    from tests.storage.conftest import TABLES, execute

    with storage.open_store(migrated_postgres) as store:
        assert isinstance(store, SqlStore)
        yield store
    execute(migrated_postgres, f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")


def cut_off(url: str) -> None:
    """Ends every other connection to a database, as a server does that fails over."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def failing(store: SqlStore, statement: str, fail: Any, times: int) -> list[str]:
    """Calls `fail` before the first statements that begin so; returns a list that they are noted in."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, text: str, parameters: Any, context: Any, many: bool) -> None:
        if text.startswith(statement):
            seen.append(text)
            if len(seen) <= times:
                fail(cursor)

    event.listen(store.database.engine, "before_cursor_execute", note)
    return seen


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_transaction_that_the_server_rolls_back_is_run_again(
    store: SqlStore, sqlstate: str, caplog: pytest.LogCaptureFixture
) -> None:
    study = store.open_study(study_key())
    raises = f"DO $$ BEGIN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '{sqlstate}'; END $$"
    seen = failing(store, "INSERT INTO mw_trials", lambda cursor: cursor.execute(raises), 2)
    with caplog.at_level(logging.WARNING):
        store.save_trials(study.id, [trial(0)])
    assert len(seen) == 3
    assert caplog.text.count("save_trials: ") == 2
    assert list(store.trials(study.id)) == [trial(0)]


def test_a_connection_that_drops_is_replaced(store: SqlStore, migrated_postgres: str) -> None:
    study = store.open_study(study_key())
    for call in (lambda: store.save_trials(study.id, [trial(0)]), lambda: store.promote(plan())):
        failing(store, "INSERT", lambda cursor: cut_off(migrated_postgres), 1)
        call()
    assert list(store.trials(study.id)) == [trial(0)]
    assert [stored.version for stored in store.plans(active_only=False)] == [1]


def test_trying_ends(store: SqlStore, migrated_postgres: str) -> None:
    seen = failing(store, "INSERT INTO mw_studies", lambda cursor: cut_off(migrated_postgres), 99)
    with pytest.raises(StoreError):
        store.open_study(study_key())
    assert len(seen) == 4


def test_only_what_may_happen_twice_is_run_again_after_a_commit_that_nobody_knows_of(
    store: SqlStore, migrated_postgres: str
) -> None:
    study = store.open_study(study_key())
    engine, cuts = store.database.engine, []

    def cut(connection: Any) -> None:
        if not cuts:
            cuts.append(1)
            cut_off(migrated_postgres)

    event.listen(engine, "commit", cut)
    store.save_trials(study.id, [trial(0)])
    assert list(store.trials(study.id)) == [trial(0)]
    cuts.clear()
    with pytest.raises(StoreError, match="nobody knows"):
        store.promote(plan())
    assert store.plans() == []


def test_another_error_is_raised_at_once(store: SqlStore) -> None:
    study = store.open_study(study_key())
    seen = failing(store, "INSERT INTO mw_trials", lambda cursor: cursor.execute("SELECT 1/0"), 1)
    with pytest.raises(StoreError, match="division by zero"):
        store.save_trials(study.id, [trial(0)])
    assert len(seen) == 1
    store.save_trials(study.id, [trial(0)])


def test_a_full_disk_is_said_and_loses_nothing(sqlite_url: str) -> None:
    with storage.open_store(sqlite_url) as store:
        assert isinstance(store, SqlStore)
        study = store.open_study(study_key())
        store.save_trials(study.id, [trial(0)])
        with store.database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        big = [trial(number, details={"text": "x" * 5000}) for number in range(1, 40)]
        with pytest.raises(StoreError, match=r"no space is left for .*\.db; what was stored is safe.*db prune"):
            store.save_trials(study.id, big)
        assert list(store.trials(study.id)) == [trial(0)]
        with store.database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        store.save_trials(study.id, big)
        assert len(store.trials(study.id)) == 40
    assert Path(parse(sqlite_url).database or "").exists()


def test_a_missing_server_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoreError, match="cannot reach"):
        storage.open_store("postgresql://u@127.0.0.1:1/x")
    assert "trying again" not in caplog.text
