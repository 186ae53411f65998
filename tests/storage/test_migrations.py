from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

import storage
from storage import migrations, revision
from storage.engines import make_engine, writing
from storage.partial import METADATA
from storage.urls import parse
from tests.storage.contracts import query
from tests.storage.processes import ROOT, together
from tests.storage.samples import SHAPE, study_key
from tuner.errors import StoreError
from tuner.plans.lookup import Rung

SCHEMAS = ROOT / "tests" / "assets" / "schema"
OURS = {*METADATA.tables, revision.VERSION_TABLE}


@contextmanager
def connection(url: str) -> Iterator[Connection]:
    engine = make_engine(parse(url), foreign_keys=False)
    try:
        with writing(engine).begin() as connection:
            yield connection
    finally:
        engine.dispose()


def tables(url: str) -> set[str]:
    with connection(url) as connected:
        return set(inspect(connected).get_table_names())


def run(url: str, *statements: str) -> None:
    with connection(url) as connected:
        for statement in statements:
            connected.exec_driver_sql(statement)


def test_up_down_and_up_again(empty_url: str) -> None:
    migrations.init(empty_url)
    assert migrations.check(empty_url) == []
    optunas = tables(empty_url) - OURS
    assert {"studies", "trials", "alembic_version"} <= optunas
    migrations.downgrade(empty_url, "base")
    assert tables(empty_url) == optunas | {revision.VERSION_TABLE}
    assert migrations.current(empty_url) is None
    assert "run `meshwright db init`" in migrations.check(empty_url)[0]
    migrations.upgrade(empty_url)
    assert migrations.check(empty_url) == []
    assert migrations.current(empty_url) == revision.HEAD


def test_init_again_changes_nothing(url: str) -> None:
    before = tables(url)
    migrations.init(url)
    assert tables(url) == before


def test_the_listed_revisions_are_the_migrations() -> None:
    script = ScriptDirectory.from_config(migrations.configuration())
    assert tuple(found.revision for found in reversed(list(script.walk_revisions()))) == revision.REVISIONS


def test_every_constraint_has_a_name() -> None:
    for table in METADATA.tables.values():
        for constraint in table.constraints:
            assert constraint.name, f"{table.name}: {constraint!r}"
        for index in table.indexes:
            assert index.name


@pytest.mark.parametrize("name", revision.REVISIONS)
def test_a_database_of_a_past_revision_comes_up_with_its_rows(name: str, tmp_path: Path) -> None:
    shutil.copy(SCHEMAS / f"{name}.db", tmp_path / "old.db")
    url = f"sqlite:///{tmp_path / 'old.db'}"
    assert migrations.current(url) == name
    migrations.upgrade(url)
    assert migrations.check(url) == []
    with storage.open_store(url) as store:
        assert store.lookup(query()).rung is Rung.EXACT
        study = store.open_study(study_key())
        assert study.counts == {"complete": 1, "rejected": 1}
        assert [trial.number for trial in store.trials(study.id)] == [0, 1]


@pytest.mark.parametrize("call", [migrations.upgrade, migrations.check, migrations.current])
def test_a_missing_file_is_never_made(call, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such database"):
        call(f"sqlite:///{tmp_path / 'new.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ALTER TABLE mw_studies ADD COLUMN extra INTEGER", "extra"),
        ("DROP INDEX uq_mw_plans_active", "uq_mw_plans_active"),
        ("DROP TABLE mw_refusals", "mw_refusals"),
        ("CREATE TABLE mw_stray (id INTEGER)", "mw_stray"),
    ],
)
def test_check_finds_what_differs(empty_url: str, change: str, named: str) -> None:
    migrations.init(empty_url)
    run(empty_url, change)
    (problem,) = migrations.check(empty_url)
    assert named in problem


def test_others_in_the_same_database_are_left_alone(empty_url: str) -> None:
    """MLflow, too, uses Alembic's default version table, which Optuna believes to be its own."""
    migrations.init(empty_url)
    migrations.downgrade(empty_url, "base")
    run(
        empty_url,
        "UPDATE alembic_version SET version_num = '728d730b5ebd'",
        "CREATE TABLE experiments (experiment_id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(256) UNIQUE)",
        "INSERT INTO experiments VALUES (1, 'mine')",
    )
    migrations.init(empty_url)
    assert migrations.check(empty_url) == []
    with storage.open_store(empty_url) as store:
        assert store.plans() == []
    optuna_storage = storage.optuna_storage(empty_url)
    assert optuna_storage.get_all_studies() == []
    optuna_storage.engine.dispose()
    migrations.downgrade(empty_url, "base")
    with connection(empty_url) as connected:
        assert connected.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == ["728d730b5ebd"]
        assert connected.exec_driver_sql("SELECT name FROM experiments").scalars().all() == ["mine"]


def test_others_that_come_first_are_left_alone(empty_url: str, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(exist_ok=True)
    (tmp_path / "new" / "meshwright.db").touch()
    run(
        empty_url,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
        "INSERT INTO alembic_version VALUES ('728d730b5ebd')",
    )
    migrations.init(empty_url)
    assert migrations.check(empty_url) == []
    optuna_storage = storage.optuna_storage(empty_url)
    assert optuna_storage.get_all_studies() == []
    optuna_storage.engine.dispose()
    with connection(empty_url) as connected:
        assert connected.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == ["728d730b5ebd"]


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations to add to."""
    copy = tmp_path / "alembic 100%"
    shutil.copytree(ROOT / "alembic", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrations, "_scripts", lambda: copy)
    return copy


def test_a_new_revision_that_alembic_writes_runs(url_to_change: str, scripts: Path) -> None:
    run(url_to_change, "DROP TABLE mw_trials", "DROP INDEX uq_mw_plans_active")
    with connection(url_to_change) as connected:
        made = command.revision(migrations.configuration(connected), "Again", autogenerate=True, rev_id="9999")
    assert made is not None
    migrations.upgrade(url_to_change)
    assert migrations.current(url_to_change) == "9999"
    run(url_to_change, f"UPDATE mw_alembic_version SET version_num = '{revision.HEAD}'")
    assert migrations.check(url_to_change) == []


@pytest.fixture
def url_to_change(empty_url: str) -> str:
    migrations.init(empty_url)
    return empty_url


def test_a_migration_that_fails_leaves_the_schema_as_it_was(url_to_change: str, scripts: Path) -> None:
    (scripts / "versions" / "9999_bad.py").write_text(
        f"from alembic import op\nimport sqlalchemy as sa\nrevision, down_revision = '9999', '{revision.HEAD}'\n\n"
        "def upgrade():\n"
        "    op.create_table('mw_half', sa.Column('id', sa.Integer(), primary_key=True))\n"
        "    op.drop_table('mw_trials')\n"
        "    raise RuntimeError('pulled the plug')\n"
    )
    before = tables(url_to_change)
    with pytest.raises(RuntimeError, match="plug"):
        migrations.upgrade(url_to_change)
    assert tables(url_to_change) == before
    assert migrations.current(url_to_change) == revision.HEAD


def test_a_table_that_is_rebuilt_keeps_the_rows_that_refer_to_it(url_to_change: str, scripts: Path) -> None:
    """SQLite alters a table by copying it and dropping the old one, which must not delete what refers to its rows."""
    with storage.open_store(url_to_change) as store:
        study = store.open_study(study_key())
        store.count_refusals(study.id, {"indivisible": 3})
    (scripts / "versions" / "9999_rebuild.py").write_text(
        f"from alembic import op\nimport sqlalchemy as sa\nrevision, down_revision = '9999', '{revision.HEAD}'\n\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('mw_studies') as batch:\n"
        "        batch.alter_column('name', new_column_name='label')\n"
    )
    migrations.upgrade(url_to_change)
    with connection(url_to_change) as connected:
        assert (
            connected.exec_driver_sql("SELECT label FROM mw_studies")
            .scalars()
            .one()
            .startswith(f"wan2.1-t2v-1.3b@{SHAPE}")
        )
        assert connected.exec_driver_sql("SELECT layouts FROM mw_refusals").scalars().all() == [3]


def test_without_optuna_there_are_our_tables_alone(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    migrations.init(empty_url)
    assert tables(empty_url) == OURS
    assert migrations.check(empty_url) == []


def test_the_migrations_travel_in_the_wheel(tmp_path: Path) -> None:
    """An installed package has no checkout around it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    installed = tmp_path / "site"
    for package in build["packages"]:
        shutil.copytree(ROOT / package, installed / package, ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in build["force-include"].items():
        shutil.copytree(ROOT / source, installed / target, ignore=shutil.ignore_patterns("__pycache__"))
    url = f"sqlite:///{tmp_path / 'x.db'}"
    code = f"from storage import migrations as m; m.init({url!r}); print(m.__file__, m.check({url!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=installed, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(installed / "storage" / "migrations.py"), "[]"]


def test_the_command_line_of_alembic_agrees(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic.config import main

    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", url)
    monkeypatch.chdir(ROOT)
    main(["check"])
    main(["current", "--check-heads"])


def test_sql_for_a_person_to_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "postgresql://u@h/d")
    command.upgrade(migrations.configuration(), "head", sql=True)
    written = capsys.readouterr().out
    assert "CREATE UNIQUE INDEX uq_mw_plans_active" in written
    assert "WHERE state = 'active'" in written


def test_any_number_of_processes_upgrade_an_old_database_at_once(empty_url: str) -> None:
    migrations.init(empty_url)
    migrations.downgrade(empty_url, revision.REVISIONS[0])
    together(
        4,
        "import storage.migrations",
        "storage.migrations.upgrade(args[0])",
        empty_url,
    )
    assert migrations.current(empty_url) == revision.HEAD
    assert migrations.check(empty_url) == []


def test_every_revision_goes_down_to_the_one_before_and_up_again(empty_url: str) -> None:
    migrations.init(empty_url)
    for name in reversed(revision.REVISIONS[:-1]):
        migrations.downgrade(empty_url, name)
        assert migrations.current(empty_url) == name
    migrations.upgrade(empty_url)
    assert migrations.check(empty_url) == []
