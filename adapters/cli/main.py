"""The command line. Each command's module is imported only when it runs, so that `lookup` stays fast."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import platformdirs

from tuner.errors import InvalidValue, PlanNotFound, TunerError, UnknownName

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_PLAN = 3
EXIT_LOOK = 4

# What an import that fails asks for, by the module that is missing.
_EXTRAS = {"jax": "tpu", "jaxlib": "tpu", "libtpu": "tpu", "optuna": "tpu", "safetensors": "tpu", "psycopg": "postgres"}
_EXTRAS |= dict.fromkeys(("starlette", "jinja2", "prometheus_client", "uvicorn"), "web") | {"prometheus_client": "tpu"}

_COMMANDS = {
    "tune": ("adapters.cli.tune", "Find the fastest layout and placement of a model on a slice."),
    "lookup": ("adapters.cli.lookup", "Print the stored plan of a model, shape and slice."),
    "plans": ("adapters.cli.plans", "List, show, export, compare, promote and retire plans."),
    "trials": ("adapters.cli.trials", "List the trials of a study."),
    "worker": ("adapters.cli.worker", "Work on open studies together with other hosts."),
    "nightly": ("adapters.cli.nightly", "Tune what is missing or stale, from a file, within a budget."),
    "explain": ("adapters.cli.explain", "Say why a plan won and where its time goes."),
    "compare": ("adapters.cli.compare", "Set a plan beside your own choice, or beside other placements."),
    "picture": ("adapters.cli.picture", "Draw a plan's placement as an SVG file."),
    "verify": ("adapters.cli.verify", "Run a plan here and compare it with the unsharded step."),
    "follow": ("adapters.cli.follow", "Take this host's part in measurements of a slice that spans hosts."),
    "report": ("adapters.cli.report", "Report a step time of a plan that production observed."),
    "models": ("adapters.cli.models", "List the models that can be tuned."),
    "slices": ("adapters.cli.slices", "List the slices that can be tuned for."),
    "calibrate": ("adapters.cli.calibrate", "Time the attached devices and fit the model's constants to them."),
    "serve": ("adapters.cli.serve", "Serve lookups and the dashboard over HTTP."),
    "db": ("adapters.cli.database", "Create, upgrade, check, prune and mend the database."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and first lines, and imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command; None if there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        _check_settings(cmd_name, command, (ctx.default_map or {}).get(cmd_name, {}))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


def settings_file() -> Path:
    """Returns where settings are read from: MESHWRIGHT_SETTINGS or the user's configuration directory."""
    named = os.environ.get("MESHWRIGHT_SETTINGS")
    return Path(named) if named else Path(platformdirs.user_config_dir("meshwright")) / "settings.toml"


def read_settings(path: Path) -> dict[str, Any]:
    """Reads a settings file: tables named after commands, keys after their options. Absent means empty.

    Raises InvalidValue if it cannot be read or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"settings file {path}: {error}") from error
    try:
        settings = _spelled(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"settings file {path}: {error}") from error
    general = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in settings.items() if isinstance(value, dict)}
    return {name: general | tables.get(name, {}) for name in _COMMANDS}


def _check_settings(name: str, command: click.Command, settings: Any) -> None:
    """Raises InvalidValue for a list where one value is meant, or one where it is a list: click reads neither well."""
    if not isinstance(settings, dict):
        return
    if isinstance(command, click.Group):
        for subcommand, inner in command.commands.items():
            _check_settings(f"{name}.{subcommand}", inner, settings.get(subcommand, {}))
    for option in command.params:
        value = settings.get(option.name or "")
        listed = bool(getattr(option, "multiple", False))
        if value is not None and isinstance(value, list) != listed:
            raise InvalidValue(
                f"setting {name}.{option.name} takes {'a list' if listed else 'one value'}, not {value!r}"
            )


def _spelled(value: Any) -> Any:
    """Returns a setting as it would be typed, so that it is read as an option is: ``videos = 1.5`` is refused too."""
    match value:
        case dict():
            return {key: _spelled(part) for key, part in value.items()}
        case list():
            return [_spelled(part) for part in value]
        case bool():
            return value
        case _:
            return str(value)


@click.group(
    cls=LazyGroup, context_settings={"auto_envvar_prefix": "MESHWRIGHT", "help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="meshwright")
def cli() -> None:
    """Find, store and serve the fastest way to lay a JAX program out on a TPU slice.

    Settings are taken from the option, else the environment (MESHWRIGHT_...), else the settings file, else the default.
    Exit codes: 0 done, 1 failed, 2 usage, 3 no plan, 4 someone must look (nightly).
    """


def main() -> None:
    """Runs the command line and turns errors into one line and an exit code."""
    try:
        cli.main(default_map=read_settings(settings_file()), standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("Stopped.", err=True)
        sys.exit(130)
    except PlanNotFound as error:
        _fail(str(error), EXIT_NO_PLAN)
    except UnknownName as error:
        hint = f" Nearest: {', '.join(error.nearest)}." if error.nearest else ""
        _fail(f"{error}.{hint}" if not str(error).endswith(".") else f"{error}{hint}", EXIT_USAGE)
    except InvalidValue as error:
        _fail(str(error), EXIT_USAGE)
    except TunerError as error:
        _fail(str(error), EXIT_FAILED)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        _fail(f"{module} is not installed; it comes with: pip install 'meshwright[{_EXTRAS[module]}]'", EXIT_FAILED)


def _fail(message: str, code: int) -> None:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
