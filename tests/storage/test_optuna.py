from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage, RDBStorage

import storage
from storage import migrations
from storage.urls import parse
from tests.storage.processes import together
from tests.storage.samples import plan
from tuner.errors import StoreError


@pytest.fixture
def optuna_storage(url: str) -> Iterator[RDBStorage]:
    opened = storage.optuna_storage(url)
    assert isinstance(opened, RDBStorage)
    yield opened
    opened.remove_session()
    opened.engine.dispose()


def test_a_study_lives_beside_ours(url: str, optuna_storage: RDBStorage) -> None:
    study = optuna.create_study(
        storage=optuna_storage, study_name="wan@832x480x81 v5e-2x4 predicted", direction="minimize"
    )
    with storage.open_store(url) as store:
        trial = study.ask({"weights": optuna.distributions.CategoricalDistribution(["replicated", "context"])})
        store.promote(plan())
        study.tell(trial, 1.5)
    assert study.best_value == 1.5
    assert migrations.check(url) == []


def test_workers_share_a_study(url: str) -> None:
    outputs = together(
        4,
        """
        import optuna, storage
        optuna.logging.disable_default_handler()
        shared = storage.optuna_storage(args[0])
        """,
        """
        study = optuna.create_study(storage=shared, study_name="s", load_if_exists=True)
        for _ in range(10):
            trial = study.ask()
            study.tell(trial, trial.suggest_int("x", 0, 9))
            print(trial.number)
        shared.remove_session()
        shared.engine.dispose()
        """,
        url,
    )
    numbers = sorted(int(number) for output in outputs for number in output.split())
    assert numbers == list(range(40))


def test_sqlite_is_used_as_our_own_stores_use_it(sqlite_url: str) -> None:
    opened = storage.optuna_storage(sqlite_url)
    with opened.engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
        other = sqlite3.connect(parse(sqlite_url).database or "", timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
    opened.engine.dispose()


def test_a_storage_that_went_to_another_process_still_works(sqlite_url: str) -> None:
    opened = storage.optuna_storage(sqlite_url)
    again = pickle.loads(pickle.dumps(opened))
    again.create_new_study([optuna.study.StudyDirection.MINIMIZE], "s")
    assert len(opened.get_all_studies()) == 1
    for each in (opened, again):
        each.remove_session()
        each.engine.dispose()


@pytest.mark.parametrize(("found", "advice"), [("v2.6.0.a", "optuna storage upgrade"), ("v99.0.0.a", "upgrade Optuna")])
def test_tables_of_another_optuna_say_what_to_run(sqlite_url: str, found: str, advice: str) -> None:
    with sqlite3.connect(Path(parse(sqlite_url).database or "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (found,))
    connection.close()
    with pytest.raises(StoreError, match=f"at {found}.*{advice}"):
        storage.optuna_storage(sqlite_url)


def test_memory() -> None:
    assert isinstance(storage.optuna_storage("memory://"), InMemoryStorage)
