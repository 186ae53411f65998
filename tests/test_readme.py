"""The README says what is true: its code is the code that runs, and every command is in it."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

import storage
from adapters.cli.main import _COMMANDS, cli
from tests.tuner.plans.samples import make_plan
from tuner.plans.workload import WorkloadKey

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_is_the_file() -> None:
    assert (ROOT / "examples" / "block.py").read_text().strip() in README


def test_the_lines_that_apply_a_plan_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    with storage.open_store(url, create=True) as store:
        store.promote(make_plan(workload=WorkloadKey(model="wan2.1-t2v-1.3b", shape="832x480x81")))
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", url)
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "open_store" in block]
    names: dict[str, Any] = {}
    exec(code, names)
    live = names["live"]
    assert dict(live.mesh.shape) == {"cfg": 2, "ulysses": 4}
    assert set(live.shardings) == {"x", "t"}
    assert live.compiler_options == {"xla_tpu_enable_async_all_to_all": "true"}


def test_nothing_is_left_to_fill_in() -> None:
    assert re.findall(r"@[A-Z_]+@", README) == []


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_and_option_is_named(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert f"meshwright {name}" in README
    subcommands = list(command.commands) if isinstance(command, click.Group) else []
    for subcommand in subcommands:
        assert re.search(rf"meshwright {name} [\w|\\]*\b{subcommand}\b", README), subcommand
    spelled = {"--db", "--format", "--quiet", "--shape", "--slice"}
    for option in (o for o in command.params if isinstance(o, click.Option)):
        if not spelled & set(option.opts):
            assert any(opt in README for opt in option.opts), option.opts
