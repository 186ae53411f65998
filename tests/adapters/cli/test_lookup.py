"""Lookups on the command line: from a database, a file, a service; with the source away."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import storage
from adapters.cli.main import cli
from tests.tuner.plans.samples import make_plan
from tuner.errors import InvalidValue, StoreError
from tuner.plans import files
from tuner.plans.workload import WorkloadKey

MODEL = "wan2.1-t2v-1.3b"
WAN = (MODEL, "--shape", "832x480x81", "--slice", "v5e-2x4")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    with storage.open_store(url, create=True) as store:
        store.promote(make_plan(workload=WorkloadKey(model=MODEL, shape="832x480x81")))
    return url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_from_an_exported_file(url: str, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    assert run("plans", "export", "1", "-o", path, "--db", url).exit_code == 0
    found = run("lookup", *WAN, "--file", path, "-f", "json")
    assert (found.exit_code, json.loads(found.stdout)["plan"]["step_s"]) == (0, 0.5)
    assert run("lookup", MODEL, "--shape", "832x480x81", "--slice", "v5e-4x4", "--file", path).exit_code == 3


def test_a_changed_file_is_refused_with_the_reason(url: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(files.dump(make_plan()).replace("0.5", "0.4"))
    done = run("lookup", *WAN, "--file", str(path))
    assert isinstance(done.exception, InvalidValue)
    assert "changed since it was written" in str(done.exception)


def test_the_last_answer_is_printed_with_its_age_while_the_database_is_away(url: str, tmp_path: Path) -> None:
    assert run("lookup", *WAN, "--db", url).exit_code == 0
    (tmp_path / "plans.db").unlink()
    done = run("lookup", *WAN, "--db", url)
    assert done.exit_code == 0
    assert "kept" in done.stdout
    assert "no such database" in done.stdout
    assert isinstance(run("lookup", MODEL, "--slice", "v5e-2x4", "--db", url).exception, StoreError)
    assert not (tmp_path / "plans.db").exists()


def test_an_address_is_one(url: str) -> None:
    assert "is no address of a service" in str(run("lookup", *WAN, "--url", "plans:8080").exception)
    assert "cannot reach http://127.0.0.1:9" in str(run("lookup", *WAN, "--url", "http://127.0.0.1:9").exception)


def test_without_a_plan_the_baseline_is_printed_and_it_is_exit_code_3(url: str) -> None:
    done = run("lookup", MODEL, "--shape", "832x480x81", "--slice", "v5e-4x4", "--db", url)
    assert done.exit_code == 3
    assert "baseline: cfg=2 context=8" in done.stdout
    assert "what people deploy" in done.stderr


def test_a_plan_as_maxdiffusion_settings(url: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    assert run("plans", "export", "1", "--as", "maxdiffusion", "-o", str(path), "--db", url).exit_code == 0
    compile(path.read_text(), path, "exec")
    assert "'ici_context_parallelism': 4" in path.read_text()
