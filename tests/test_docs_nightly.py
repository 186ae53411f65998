"""What docs/nightly.md tells people to copy is right, as far as a machine without a TPU or a cluster can tell."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import generate_latest

from adapters.cli.main import cli
from adapters.nightly import read_file
from adapters.nightly_metrics import registry
from tests.tuner.nightly.test_report import REPORT

TEXT = (Path(__file__).parent.parent / "docs" / "nightly.md").read_text()
systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


def unit(kind: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(block(kind))
    return parser


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Parses what follows `meshwright nightly`; an option that does not exist fails."""
    command = cli.get_command(click.Context(cli), "nightly")
    assert command is not None
    return command.make_context("nightly", arguments).params


def test_the_file_is_read_with_every_key_of_it(tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(block("toml"))
    matrix = read_file(path)
    assert len(matrix.entries) == 2 * 2 * 2 + 1
    assert matrix.entries[0].name == "wan2.1-t2v-1.3b@832x480x81 on v5e-2x4 (reserve=2GiB)"
    assert (matrix.budget_s, matrix.device_budget_s, matrix.lock_ttl_s) == (21600.0, 1800.0, 300.0)
    assert matrix.entries[-1].max_trials == 20


def test_the_service_runs_the_command_and_outlives_its_budget(tmp_path: Path) -> None:
    service = unit("systemd-service")["Service"]
    program, name, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, name) == ("meshwright", "nightly")
    options = parsed(arguments)
    assert options["file"] == Path("/etc/meshwright/nightly.toml")
    assert options["metrics"].suffix == ".prom"
    assert service["SuccessExitStatus"] == "4"
    path = tmp_path / "nightly.toml"
    path.write_text(block("toml"))
    assert int(service["TimeoutStartSec"].removesuffix("h")) * 3600 > (read_file(path).budget_s or 0)


@systemd
def test_systemd_takes_both_units(tmp_path: Path) -> None:
    text = block("systemd-service")
    program = shlex.split(re.findall("ExecStart=(.*)", text)[0])[0]
    here = shutil.which("true")
    assert here is not None
    # What is not on this machine is replaced; all else is as it is in the docs.
    text = text.replace(program, here).replace("User=meshwright\n", "User=root\n")
    (tmp_path / "meshwright-nightly.service").write_text(text)
    (tmp_path / "meshwright-nightly.timer").write_text(block("systemd-timer"))
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "meshwright-nightly" in line]
    assert complaints == []


@systemd
def test_the_timer_fires_every_night() -> None:
    calendar = unit("systemd-timer")["Timer"]["OnCalendar"]
    done = subprocess.run(
        ["systemd-analyze", "calendar", "--iterations=2", calendar], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("22:00:00") >= 2


def test_the_crontab_line_runs_the_command() -> None:
    line = block("crontab").strip()
    assert "\n" not in line
    assert "%" not in line  # cron would end the command there
    *when, command = line.split(" ", 5)
    for field, (least, most) in zip(when, [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)], strict=True):
        assert field == "*" or least <= int(field) <= most
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0
    words = shlex.split(command.partition("&& ")[2].partition(">/dev/null")[0])
    assert words[:2] == ["bin/meshwright", "nightly"]
    assert parsed(words[2:])["quiet"]


def test_the_cron_job_is_one_that_kubernetes_takes() -> None:
    job = yaml.safe_load(block("yaml"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    spec = job["spec"]
    assert len(spec["schedule"].split()) == 5
    assert spec["concurrencyPolicy"] in ("Allow", "Forbid", "Replace")
    inner = spec["jobTemplate"]["spec"]
    pod = inner["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:2] == ["meshwright", "nightly"]
    assert parsed(container["command"][2:])["quiet"]
    assert all(isinstance(variable.get("value", ""), str) for variable in container["env"])
    # A failure policy is legal only with Never, and names a container.
    assert pod["restartPolicy"] == "Never"
    (rule,) = inner["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert set(rule["onExitCodes"]["values"]) <= {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.M)} - {0}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    allowed = {"schedule", "concurrencyPolicy", "startingDeadlineSeconds", "successfulJobsHistoryLimit"}
    assert set(spec) <= allowed | {"failedJobsHistoryLimit", "jobTemplate", "suspend", "timeZone"}


def test_the_metrics_and_options_that_are_named_exist() -> None:
    written = generate_latest(registry(REPORT)).decode()
    named = set(re.findall(r"meshwright_night_\w+", TEXT))
    assert len(named) >= 7
    for name in named:
        assert f"\n{name}{{" in written or f"\n{name} " in written, name
    command = cli.get_command(click.Context(cli), "nightly")
    assert command is not None
    own = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    for option in set(re.findall(r"`(--[\w-]+)", TEXT)):
        assert option in own, option
