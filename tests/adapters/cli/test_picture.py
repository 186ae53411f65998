"""`picture` draws what is stored, as a file that stands alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from adapters.cli.main import cli
from tests.adapters.web.study import wan_study
from tuner.errors import InvalidValue, UnknownName


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return wan_study(tmp_path_factory.mktemp("picture") / "wan.db")


def run(*arguments: str, db: str) -> Result:
    return CliRunner().invoke(cli, ["picture", *arguments, "--db", db])


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg.encode())
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_plan_is_drawn_beside_jaxs_default(database: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    done = run("1", "-o", str(path), db=database)
    assert done.exit_code == 0, done.output
    words = texts(path.read_text())
    assert {"plan 1, wan2.1-t2v-14b@832x480x81 on v5e-4x4", "JAX's default"} <= set(words)
    assert "1512.6 ms a step (predicted)" in words
    assert "style" in path.read_text()


def test_options_choose_what_is_drawn(database: str) -> None:
    done = run(
        *("1", "--axis", "cfg", "--collective", "collective-permute:ring", "--group", "every"),
        *("--beside", "none"),
        db=database,
    )
    words = texts(done.output)
    assert "cfg:" in words
    assert "collective-permute over ring, every group" in words
    assert "JAX's default" not in words
    assert "row-major" in texts(run("1", "--beside", "row-major", db=database).output)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (("--axis", "nothing"), UnknownName),
        (("--collective", "nothing"), UnknownName),
        (("--group", "9"), UnknownName),
        (("--group", "some"), InvalidValue),
    ],
)
def test_what_is_not_there_is_refused(database: str, wrong: tuple[str, str], error: type[Exception]) -> None:
    assert isinstance(run("1", *wrong, db=database).exception, error)


def test_drawing_needs_neither_the_web_nor_jax() -> None:
    code = "import sys, adapters.cli.picture; print({'starlette', 'jinja2', 'jax', 'optuna'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
