from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import TrialState
from sqlalchemy import event

import storage
from storage import migrations
from storage.batches import BatchRDBStorage
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


def test_reading_waits_for_no_writer_and_keeps_none_waiting(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.engines.BUSY_S", 0.05)
    opened = storage.optuna_storage(sqlite_url)
    study = optuna.create_study(storage=opened, study_name="s")
    study.tell(study.ask(), 1.5)
    writer = sqlite3.connect(parse(sqlite_url).database or "", isolation_level=None, timeout=0)
    writer.execute("BEGIN IMMEDIATE")
    assert [t.value for t in optuna.load_study(storage=opened, study_name="s").trials] == [1.5]
    with pytest.raises(optuna.exceptions.StorageInternalError):
        study.ask()
    writer.execute("COMMIT")
    assert study.ask().number == 1
    began = []
    event.listen(opened.engine, "after_cursor_execute", lambda *arguments: began.append(arguments[2]))
    assert len(study.trials) == 2
    assert "BEGIN IMMEDIATE" not in began
    writer.close()
    opened.remove_session()
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


def test_a_batch_of_trials_is_what_optuna_writes_one_by_one(url: str, optuna_storage: RDBStorage) -> None:
    assert isinstance(optuna_storage, BatchRDBStorage)
    words = optuna.distributions.CategoricalDistribution(["rows", "rings"])
    sizes = optuna.distributions.CategoricalDistribution([1, 2, 4])
    trials = [
        optuna.trial.create_trial(
            state=state,
            value=value,
            params={"walk": "rings", "tensor": 4} if value else {"tensor": 1},
            distributions={"walk": words, "tensor": sizes} if value else {"tensor": sizes},
            user_attrs={"candidate": "abc", "duplicate_of": 3},
            intermediate_values={0: bound},
        )
        for state, value, bound in [
            (TrialState.PRUNED, None, 0.25),
            (TrialState.COMPLETE, 1.5, float("inf")),
            (TrialState.COMPLETE, float("inf"), float("nan")),
            (TrialState.FAIL, None, float("-inf")),
        ]
    ]
    one = optuna.create_study(storage=optuna_storage, study_name="one by one")
    one.add_trials(trials)
    batch = optuna.create_study(storage=optuna_storage, study_name="batch")
    batch.ask()
    study_id = optuna_storage.get_study_id_from_name("batch")
    assert optuna_storage.create_new_trials(study_id, trials) == [1, 2, 3, 4]
    assert optuna_storage.create_new_trials(study_id, []) == []
    for expected, found in zip(one.trials, batch.trials[1:], strict=True):
        assert found.number == expected.number + 1
        for name in ("state", "values", "params", "distributions", "user_attrs", "datetime_start", "datetime_complete"):
            assert getattr(found, name) == getattr(expected, name)
        assert repr(found.intermediate_values) == repr(expected.intermediate_values)  # NaN is not equal to itself
    assert batch.best_value == 1.5
    with pytest.raises(KeyError):
        optuna_storage.create_new_trials(study_id + 100, trials)


def test_batches_of_workers_are_numbered_apart(url: str) -> None:
    with_study = storage.optuna_storage(url)
    optuna.create_study(storage=with_study, study_name="s")
    together(
        4,
        """
        import optuna, storage
        optuna.logging.disable_default_handler()
        shared = storage.optuna_storage(args[0])
        """,
        """
        pruned = optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED)
        study = optuna.load_study(study_name="s", storage=shared)
        for _ in range(5):
            study.tell(study.ask(), 1.0)
            shared.create_new_trials(shared.get_study_id_from_name("s"), [pruned] * 4)
        shared.remove_session()
        shared.engine.dispose()
        """,
        url,
    )
    numbers = [trial.number for trial in optuna.load_study(study_name="s", storage=with_study).trials]
    assert numbers == list(range(4 * 5 * 5))
