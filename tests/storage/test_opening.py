from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import storage
from storage import revision
from storage.memory import MemoryStore
from storage.urls import parse, shown
from tests.storage.contracts import query
from tests.storage.processes import ROOT
from tests.storage.samples import plan
from tuner.errors import StoreError
from tuner.plans.lookup import Rung


def test_a_missing_file_is_an_error_and_stays_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (storage.open_store, storage.optuna_storage):
        with pytest.raises(StoreError) as caught:
            call("sqlite:///plans.db")
        assert str(caught.value) == f"no such database: {tmp_path / 'plans.db'}"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_goes_away_is_not_made_again(sqlite_url: str) -> None:
    path = Path(parse(sqlite_url).database or "")
    with storage.open_store(sqlite_url) as store:
        store.close()
        path.unlink()
        with pytest.raises(StoreError, match=f"no such database: {path}"):
            store.lookup(query())
        assert not path.exists()


def test_create_makes_the_file_its_directories_and_the_tables_once(empty_url: str) -> None:
    with storage.open_store(empty_url, create=True) as store:
        store.promote(plan())
    with storage.open_store(empty_url, create=True) as store:
        assert store.lookup(query()).rung is Rung.EXACT
    with storage.open_store(empty_url) as store:
        assert store.lookup(query()).rung is Rung.EXACT


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot make .*Not a directory|cannot make .*File exists"):
        storage.open_store(f"sqlite:///{tmp_path / 'file' / 'x.db'}", create=True)


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path}: unable to open database file"):
        storage.open_store(f"sqlite:///{tmp_path}", create=True)


def test_a_database_of_others_says_what_to_run(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE experiments (id INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match=r"other\.db holds no meshwright tables; run `meshwright db init`"):
        storage.open_store(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="holds no Optuna tables; run `meshwright db init`"):
        storage.optuna_storage(f"sqlite:///{path}")


@pytest.mark.parametrize("create", [False, True])
def test_an_older_database_says_what_to_run(url: str, monkeypatch: pytest.MonkeyPatch, create: bool) -> None:
    old = revision.HEAD
    monkeypatch.setattr(revision, "REVISIONS", (*revision.REVISIONS, "9999"))
    monkeypatch.setattr(revision, "HEAD", "9999")
    with pytest.raises(StoreError, match=f"at revision {old}, this version needs 9999; run `meshwright db upgrade`"):
        storage.open_store(url, create=create)


def test_a_newer_database_says_to_upgrade_the_package(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = revision.HEAD
    monkeypatch.setattr(revision, "REVISIONS", ("0000",))
    monkeypatch.setattr(revision, "HEAD", "0000")
    with pytest.raises(StoreError, match=rf"at revision {new}, which a newer meshwright made.*upgrade the package"):
        storage.open_store(url)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("this is not a database, " * 100)
    with pytest.raises(StoreError, match=r"notes\.db is damaged or not an SQLite database"):
        storage.open_store(f"sqlite:///{path}")


def test_a_truncated_file(sqlite_url: str) -> None:
    path = Path(parse(sqlite_url).database or "")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match=r"meshwright\.db is damaged"):
        storage.open_store(sqlite_url)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"cannot reach .*user:\*\*\*@127\.0\.0\.1:1/plans") as caught:
        storage.open_store("postgresql://user:secret@127.0.0.1:1/plans")
    assert "secret" not in str(caught.value)


def test_memory() -> None:
    store = storage.open_store("memory://")
    assert isinstance(store, MemoryStore)
    assert store.lookup(query()).rung is Rung.NONE


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg2://u@h:5/d?sslmode=require", "postgresql+psycopg://u@h:5/d?sslmode=require"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("sqlite+pysqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_one_spelling_for_each_database(given: str, spelled: str) -> None:
    assert parse(given).render_as_string() == spelled


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("plans.db", r"did you mean sqlite:///plans\.db\?"),
        ("", "not a database URL: ''; legal: sqlite"),
        ("mysql://u@h/d", "no store for 'mysql://u@h/d'; legal: sqlite"),
        ("sqlite://", "must name a file"),
        ("sqlite:///:memory:", "must name a file.*memory://"),
    ],
)
def test_other_urls_are_refused_with_the_legal_ones(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        parse(url)


def test_a_home_directory_and_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    odd = tmp_path / "100% {mine} #1 é.db"
    shutil.copy(migrated_sqlite, odd)
    url = "sqlite:///~/100% {mine} #1 é.db"
    assert shown(parse(url)) == str(odd)
    with storage.open_store(url) as store:
        assert store.promote(plan()).version == 1
    optuna_storage = storage.optuna_storage(url)
    assert optuna_storage.get_all_studies() == []
    assert sorted(tmp_path.glob("*.db")) == [odd]


def test_the_default_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MESHWRIGHT_DATABASE_URL", raising=False)
    assert storage.default_url() == f"sqlite:///{tmp_path / 'meshwright' / 'meshwright.db'}"
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "memory://")
    assert storage.default_url() == "memory://"
    assert isinstance(storage.open_store(), MemoryStore)


def loaded_by(program: str, *arguments: str) -> set[str]:
    """Returns the modules that a program has loaded when it ends."""
    program += "\nimport sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    loaded = loaded_by("import storage, tuner.plans.lookup, tuner.stores")
    assert not loaded & {"jax", "jaxlib", "optuna", "sqlalchemy", "alembic", "numpy", "platformdirs"}


def test_a_lookup_loads_neither_jax_nor_optuna_nor_alembic(sqlite_url: str) -> None:
    with storage.open_store(sqlite_url) as store:
        store.promote(plan())
    loaded = loaded_by(
        "import sys, storage\n"
        "from tests.storage.contracts import query\n"
        "store = storage.open_store(sys.argv[1])\n"
        "assert store.lookup(query()).plan is not None\n"
        "store.close()",
        sqlite_url,
    )
    assert "sqlalchemy" in loaded
    assert not loaded & {"jax", "jaxlib", "optuna", "alembic", "numpy", "psycopg", "sqlalchemy.dialects.postgresql"}
