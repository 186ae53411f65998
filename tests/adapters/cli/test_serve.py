"""`meshwright serve` as a process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import storage
from adapters.cli.main import cli
from adapters.client import Client
from tests.tuner.plans.samples import TOOLCHAIN, make_plan
from tuner.errors import InvalidValue
from tuner.plans.lookup import Query, Rung

QUERY = Query(model="wan", shape="832x480x81", slice_name="v5e-2x4", toolchain=TOOLCHAIN)


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


@pytest.fixture
def service(port: int, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A service on a database that is not there yet."""
    code = "from adapters.cli.main import main; main()"
    arguments = ["serve", "--port", str(port), "--db", f"sqlite:///{tmp_path / 'later.db'}", "--root-path", "/plans"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MESHWRIGHT")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_serves_once_the_database_is_there_and_stops_when_told(
    service: "subprocess.Popen[str]", port: int, tmp_path: Path
) -> None:
    with storage.open_store(f"sqlite:///{tmp_path / 'later.db'}", create=True) as store:
        store.promote(make_plan())
    deadline = time.monotonic() + 60
    with Client(f"http://127.0.0.1:{port}/plans", directory=tmp_path / "kept") as client:
        while True:
            try:
                served = client.lookup(QUERY)
                break
            except Exception:
                assert service.poll() is None, service.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert served.answer.rung is Rung.EXACT
    service.send_signal(signal.SIGTERM)
    assert "Traceback" not in service.communicate(timeout=30)[1]


@pytest.mark.parametrize(
    ("token", "reason"), [(b"short", "at least 16"), (b"\xff" * 20, "token file"), (None, "No such file")]
)
def test_a_token_that_is_none_is_refused(tmp_path: Path, token: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    if token is not None:
        path.write_bytes(token)
    done = CliRunner().invoke(cli, ["serve", "--token-file", str(path)])
    assert isinstance(done.exception, InvalidValue)
    assert reason in str(done.exception)


def test_a_prefix_begins_with_a_slash() -> None:
    done = CliRunner().invoke(cli, ["serve", "--root-path", "plans"])
    assert isinstance(done.exception, InvalidValue)
    assert "must begin with a slash" in str(done.exception)
