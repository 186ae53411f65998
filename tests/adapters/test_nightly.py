"""Nights from the command line: the file, and two nights over the real compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import storage
from adapters.nightly import read_file
from tuner.errors import InvalidValue
from tuner.leases import new_owner
from tuner.nightly.nights import NightState
from tuner.nightly.report import NightReport

ROOT = Path(__file__).parent.parent.parent

WORK = """
import jax
from adapters.jax.workload import Argument, FunctionWorkload
from tuner.layouts.space import Dimension


def workload(model, width):
    def mlp(s, params, x):
        return s.constrain(jax.nn.gelu(x @ params["up"]) @ params["down"], "batch", None)

    return FunctionWorkload(
        model=model,
        function=mlp,
        arguments=(
            {
                "up": Argument(shape=(width, 4096), names=(None, "mlp")),
                "down": Argument(shape=(4096, width), names=("mlp", None)),
            },
            Argument(shape=(4096, width), names=("batch", None)),
        ),
        dimensions=tuple(Dimension(name=name, sizes=(1, 2, 4)) for name in ("data", "tensor")),
        rules={"batch": ("data",), "mlp": ("tensor",)},
        results=("batch", None),
    )


narrow = workload("narrow", 1024)
wide = workload("wide", 2048)
"""

FILE = """
budget = "30min"
lock_ttl = "1min"

[[matrix]]
models = ["work:narrow"]
slices = ["v5e-2x2"]

[[matrix]]
models = ["work:wide"]
slices = ["v5litepod-4"]
priority = 1
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts `meshwright` where `work.py` and `nightly.toml` are, with a database of its own."""
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "nightly.toml").write_text(FILE)

    def call(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        own = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "MESHWRIGHT_DATABASE_URL": url(tmp_path)}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHWRIGHT") and k != "XLA_FLAGS"}
        return subprocess.Popen(
            [sys.executable, "-c", "from adapters.cli.main import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=inherited | own | environment,
        )

    return call


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'plans.db'}"


def night(start: Start, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    process = start("nightly", "nightly.toml", *arguments, **environment)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    return output, errors


@pytest.mark.compiler
def test_two_nights_and_a_new_toolchain_between_them(start: Start, tmp_path: Path) -> None:
    output, errors = night(start, "--report", "night.md", "--report", "night.json", "--metrics", "night.prom")
    assert "2 entries, 2 due, 0 to re-check first" in errors
    assert errors.index("search 1 of 2: work:wide on v5e-2x2") < errors.index("search 2 of 2: work:narrow on v5e-2x2")
    assert "## New" in output
    assert (tmp_path / "night.md").read_text() == output
    first = NightReport.from_json(json.loads((tmp_path / "night.json").read_text()))
    assert first.state is NightState.COMPLETE
    assert all(entry.finished and entry.compiled for entry in first.entries)
    assert 'meshwright_night_entries{ending="promoted"} 2.0' in (tmp_path / "night.prom").read_text()

    # The same compiler with another flag is another toolchain: what is there is compiled again before any search.
    flags = "--xla_cpu_enable_fast_math=false"
    output, errors = night(start, "-f", "json", XLA_FLAGS=flags)
    second = NightReport.from_json(json.loads(output))
    assert [entry.due.value for entry in second.entries] == ["stale", "stale"]
    for entry in second.entries:
        assert entry.recheck is not None
        assert entry.recheck.changes == (f"XLA_FLAGS absent is now {flags}",)
        assert entry.recheck.restated
        assert entry.recheck.loss == pytest.approx(0.0)  # the compiler is the same
        assert entry.finished
    with storage.open_store(url(tmp_path)) as store:
        flagged = [bool(stored.plan.toolchain.flags) for stored in store.plans(active_only=False)]
        assert sorted(flagged) == [False] * 2 + [True] * (len(flagged) - 2)
        assert flagged[-4:-2] == [True] * 2  # the re-checks went into service first
        assert len(store.plans()) == 4  # for either toolchain
        assert [stored.state for stored in store.nights()] == [NightState.COMPLETE] * 2
        assert store.leases() == []

    output, errors = night(start, "--dry-run", XLA_FLAGS=flags)
    assert output.count("fresh") == 2
    assert "due" in output.splitlines()[0]


@pytest.mark.compiler
def test_a_night_that_is_told_to_stop_writes_its_report_and_frees_its_lock(start: Start, tmp_path: Path) -> None:
    process = start("nightly", "nightly.toml", "--report", "night.json")
    try:
        assert process.stderr is not None
        assert any(line.startswith("enumerate") for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "It was told to stop" in output
    report = NightReport.from_json(json.loads((tmp_path / "night.json").read_text()))
    assert report.state is NightState.INTERRUPTED
    assert {entry.name.split()[0]: entry.ending.value for entry in report.entries} == {
        "work:narrow": "no-time",
        "work:wide": "interrupted",
    }
    with storage.open_store(url(tmp_path)) as store:
        assert store.leases() == []
        assert store.nights()[0].state is NightState.INTERRUPTED


def test_two_nights_do_not_overlap(start: Start, tmp_path: Path) -> None:
    with storage.open_store(url(tmp_path), create=True) as store:
        assert store.claim("nightly", owner=new_owner(), ttl_s=600)
        _, errors = night(start, code=1)
        assert "is running; its lock runs out at" in errors
        assert store.nights() == []


def test_one_entry_that_fails_is_told_with_its_traceback_and_someone_must_look(start: Start, tmp_path: Path) -> None:
    (tmp_path / "nightly.toml").write_text('[[matrix]]\nmodels = ["work:broken"]\nslices = ["v5e-2x2"]\n')
    (tmp_path / "work.py").write_text("def broken():\n    raise ZeroDivisionError('a bug in the model')\n")
    output, errors = night(start, "--report", "absent/night.md", code=4)
    assert "work:broken on v5e-2x2 failed: ZeroDivisionError: a bug in the model" in output
    assert "Traceback" in errors
    assert "in broken" in errors
    assert "the report was not written to absent/night.md" in errors


def test_dry_run_changes_nothing(start: Start, tmp_path: Path) -> None:
    _, errors = night(start, "--dry-run", code=1)
    assert "no such database" in errors
    assert not (tmp_path / "plans.db").exists()
    with storage.open_store(url(tmp_path), create=True):
        pass
    output, _ = night(start, "--dry-run", "-f", "json")
    assert [(entry["entry"].split()[0], entry["due"]) for entry in json.loads(output)] == [
        ("work:wide", "missing"),
        ("work:narrow", "missing"),
    ]
    with storage.open_store(url(tmp_path)) as store:
        assert store.nights() == []
        assert store.studies() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("budget = 'soon'", ["budget = 'soon'", "not a time"]),
        ("budget = \n", ["nightly.toml", "line 1"]),
        ("[[matrix]]\nmodels = ['wan2.1-t2v-1.3']\nslices = ['v5e-2x4']", ["matrix[0]", "wan2.1-t2v-1.3b"]),
        (
            "[[matrix]]\nmodels = ['wan2.1-t2v-1.3b']\nshapes = ['832x480x80']\nslices = ['v5e-2x4']",
            ["matrix[0]", "832x480x80", "832x480x81"],
        ),
        (
            "[[matrix]]\nmodels = ['any:thing']\nslices = ['v5e-2x4']\nlinks = ['0,0:1,3=0.5']",
            ["matrix[0]", "no link between"],
        ),
    ],
)
def test_a_mistake_in_the_file_names_it(tmp_path: Path, change: str, words: list[str]) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(change)
    with pytest.raises(InvalidValue) as caught:
        read_file(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(("nightly", "absent.toml"), "absent.toml"), (("nightly", "nightly.toml", "--report", "x.txt"), ".md or .json")],
)
def test_usage(start: Start, tmp_path: Path, arguments: tuple[Any, ...], hint: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert hint in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "plans.db").exists()
