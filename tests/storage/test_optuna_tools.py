"""Optuna's own tools on a database of ours."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage

import storage
from storage.urls import parse, sqlite_path
from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tests.tuner.search.test_funnel import EXHAUSTIVE, SLICE, TOOLCHAIN
from tuner.ports import WorkloadSpec
from tuner.search.funnel import Search
from tuner.search.outcome import Outcome


@pytest.fixture
def searched(sqlite_url: str) -> tuple[Path, Outcome]:
    """A database with a finished search in it."""
    shared = storage.optuna_storage(sqlite_url)
    assert isinstance(shared, RDBStorage)
    with storage.open_store(sqlite_url) as store:
        outcome = Search(
            workload=FakeWorkload(),
            spec=WorkloadSpec(model="fake"),
            slice_=SLICE,
            toolchain=TOOLCHAIN,
            screener=FakeScreener(),
            compiler=FakeCompiler(),
            store=store,
            optuna_storage=shared,
            settings=EXHAUSTIVE,
        ).run()
    shared.remove_session()
    shared.engine.dispose()
    return sqlite_path(parse(sqlite_url)), outcome


def test_optuna_trials_shows_layouts_placements_and_reasons(searched: tuple[Path, Outcome]) -> None:
    path, outcome = searched
    url = ["--storage", f"sqlite:///{path}"]
    script = "import sys; from optuna.cli import main; sys.exit(main())"
    command = [sys.executable, "-W", "ignore", "-c", script]
    printed = subprocess.run(
        [*command, "trials", *url, "--study-name", outcome.study.key.name, "-f", "json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = json.loads(printed)
    best = next(row for row in rows if row["number"] == outcome.trials[0].number)
    assert best["state"] == "COMPLETE"
    assert best["value"] == outcome.trials[0].predicted_s
    assert best["params"]["data"] == outcome.trials[0].candidate.layout.size("data")
    assert any(name.startswith("block ") for row in rows for name in row["params"])
    assert best["user_attrs"]["placement"] == outcome.trials[0].placement.description  # type: ignore[union-attr]
    names = subprocess.run([*command, "studies", *url, "-f", "json"], capture_output=True, text=True, check=True).stdout
    assert (
        json.loads(names)[0]["name"]
        == outcome.study.key.name
        == "fake@1x1x1 v5e-2x4 predicted " + (outcome.study.key.digest[:8])
    )


def test_optuna_dashboard_shows_the_study(searched: tuple[Path, Outcome]) -> None:
    dashboard = pytest.importorskip("optuna_dashboard")
    path, outcome = searched
    shared = RDBStorage(f"sqlite:///{path}")  # as the tool opens it
    try:
        app = dashboard.wsgi(shared)

        def get(url: str) -> dict[str, object]:
            status: list[str] = []
            where, _, query = url.partition("?")
            environ = {
                "REQUEST_METHOD": "GET",
                "PATH_INFO": where,
                "QUERY_STRING": query,
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "80",
                "wsgi.url_scheme": "http",
                "wsgi.input": io.BytesIO(),
                "HTTP_ACCEPT": "application/json",
                "CONTENT_TYPE": "application/json",
            }
            body = b"".join(app(environ, lambda line, headers, *rest: status.append(line)))
            assert status[0].startswith("200"), (status, body)
            return json.loads(body)  # type: ignore[no-any-return]

        (study,) = get("/api/studies")["study_summaries"]  # type: ignore[misc]
        assert study["study_name"] == outcome.study.key.name
        detail = get(f"/api/studies/{study['study_id']}?after=0")
        trials = detail["trials"]
        assert isinstance(trials, list)
        assert len(trials) == len(optuna.load_study(study_name=study["study_name"], storage=shared).trials)
        best = trials[outcome.trials[0].number]
        shown = {param["name"]: param["param_external_value"] for param in best["params"]}
        assert shown["weights"] == str(outcome.trials[0].candidate.layout.option("weights"))
        assert any(name.startswith("block ") for trial in trials for name in (p["name"] for p in trial["params"]))
    finally:
        shared.remove_session()
        shared.engine.dispose()
