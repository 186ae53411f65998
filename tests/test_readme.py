"""The README says what is true: its code is the code that runs, and every command is in it."""

import re
from pathlib import Path

import click
import pytest

from adapters.cli.main import _COMMANDS, cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_is_the_file() -> None:
    assert (ROOT / "examples" / "block.py").read_text().strip() in README


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
