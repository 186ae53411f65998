from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.cli.main import cli
from storage import migrations


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'meshwright.db'}"
    migrations.init(url)
    return url


def run(*arguments: str):
    return CliRunner().invoke(cli, ["worker", *arguments])


def test_without_work_it_ends_when_told_to(url: str) -> None:
    result = run("--db", url, "--once", "--jobs", "1")
    assert result.exit_code == 0, result.output


def test_a_missing_database_is_never_made(tmp_path: Path) -> None:
    result = run("--db", f"sqlite:///{tmp_path / 'plans.db'}", "--once")
    assert "no such database" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stages", ["compile", "measure,compile", "", "screen,compile,place,fly"])
def test_stages_that_are_no_role_are_refused_with_the_legal_ones(url: str, stages: str) -> None:
    result = run("--db", url, "--once", "--stages", stages)
    assert "legal: screen,compile,place or measure" in str(result.exception)
