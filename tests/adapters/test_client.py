"""The client against a real service in a thread, a real database, and both of them gone."""

import http.server
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn

import storage
from adapters.client import Client, service_url
from adapters.web.app import create_app
from tests.tuner.plans.samples import TOOLCHAIN, make_plan
from tuner.canonical import digest
from tuner.errors import InvalidValue, StoreError
from tuner.plans.lookup import Query, Rung
from tuner.plans.plan import Constraints
from tuner.plans.workload import WorkloadKey

QUERY = Query(model="wan", shape="832x480x81", slice_name="v5e-2x4", toolchain=TOOLCHAIN)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    with storage.open_store(url, create=True) as store:
        store.promote(make_plan())
    return url


@contextmanager
def service(url: str) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(url), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def client(source: str, tmp_path: Path) -> Client:
    return Client(source, directory=tmp_path / "kept", timeout_s=5)


def test_a_service_answers_as_its_database_does(url: str, tmp_path: Path) -> None:
    queries = [
        QUERY,
        replace(QUERY, toolchain=None),
        replace(QUERY, toolchain=replace(TOOLCHAIN, flags=(("XLA_FLAGS", "--a=1;2 --b=%"),))),
        replace(QUERY, shape="832x480x49"),
        replace(QUERY, revision="9"),
        replace(QUERY, variant="videos=2", constraints=Constraints(reserve_hbm_bytes=5, links=("0,0:1,0=0.5",))),
        replace(QUERY, model="wan2.1-t2v-14b"),
    ]
    with service(url) as address, client(address, tmp_path) as far, client(url, tmp_path) as near:
        rungs = [far.lookup(query).answer for query in queries]
        assert rungs == [near.lookup(query).answer for query in queries]
    assert [answer.rung for answer in rungs] == [
        Rung.EXACT,
        Rung.UNCHECKED,
        Rung.STALE_TOOLCHAIN,
        Rung.NEAR_SHAPE,
        Rung.NONE,
        Rung.NONE,
        Rung.BASELINE,
    ]


def test_a_model_of_ones_own_without_shapes(url: str, tmp_path: Path) -> None:
    with storage.open_store(url) as store:
        store.promote(make_plan(workload=WorkloadKey(model="examples.block:workload", shape="")))
    with service(url) as address, client(address, tmp_path) as asks:
        query = replace(QUERY, model="examples.block:workload", shape="")
        assert asks.lookup(query).answer.rung is Rung.EXACT


def test_what_the_service_does_not_take_is_the_callers_mistake(url: str, tmp_path: Path) -> None:
    with service(url) as address, client(address, tmp_path) as asks, pytest.raises(InvalidValue, match="legal"):
        asks.lookup(replace(QUERY, model="a b"))


def test_the_last_good_answer_outlives_the_service(url: str, tmp_path: Path) -> None:
    with service(url) as address:
        now = client(address, tmp_path).lookup(QUERY)
    assert now.kept_at is None
    later = client(address, tmp_path).lookup(QUERY)
    assert later.answer.plan == now.answer.plan
    assert later.answer.rung is Rung.EXACT
    assert "kept" in later.answer.reasons[0]
    assert "cannot reach http://127.0.0.1" in later.answer.reasons[0]
    assert 0 <= later.age_s < 60
    with pytest.raises(StoreError, match="cannot reach"):
        client(address, tmp_path).lookup(replace(QUERY, shape="832x480x49"))


def test_the_last_good_answer_outlives_the_database_and_says_that_the_toolchain_changed(
    url: str, tmp_path: Path
) -> None:
    client(url, tmp_path).lookup(QUERY)
    (tmp_path / "plans.db").rename(tmp_path / "away.db")
    answer = client(url, tmp_path).lookup(replace(QUERY, toolchain=replace(TOOLCHAIN, libtpu="9"))).answer
    assert answer.rung is Rung.STALE_TOOLCHAIN
    assert "no such database" in answer.reasons[0]
    assert "libtpu 0.0.50.1 is now 9" in answer.reasons


def test_the_age_is_that_of_the_answer(url: str, tmp_path: Path) -> None:
    client(url, tmp_path).lookup(QUERY)
    (path,) = (tmp_path / "kept").iterdir()
    body = json.loads(path.read_text())
    body["at"] = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    del body["sha256"]
    path.write_text(json.dumps({"sha256": digest(body), **body}))
    (tmp_path / "plans.db").unlink()
    served = client(url, tmp_path).lookup(QUERY)
    assert served.age_s == pytest.approx(3 * 3600, abs=60)
    assert "3 h ago" in served.answer.reasons[0]


def test_a_plan_that_was_retired_is_forgotten(url: str, tmp_path: Path) -> None:
    client(url, tmp_path).lookup(QUERY)
    with storage.open_store(url) as store:
        store.retire(1, note="gave NaN")
    assert client(url, tmp_path).lookup(QUERY).answer.plan is None
    (tmp_path / "plans.db").unlink()
    with pytest.raises(StoreError, match="no such database"):
        client(url, tmp_path).lookup(QUERY)


@pytest.mark.parametrize("damage", [lambda text: text[:-5], lambda text: text.replace("0.5", "0.4"), lambda text: ""])
def test_a_damaged_file_counts_as_absent_with_a_warning(  # type: ignore[no-untyped-def]
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage
) -> None:
    client(url, tmp_path).lookup(QUERY)
    (path,) = (tmp_path / "kept").iterdir()
    path.write_text(damage(path.read_text()))
    (tmp_path / "plans.db").rename(tmp_path / "away.db")
    with caplog.at_level(logging.WARNING), pytest.raises(StoreError, match="no such database"):
        client(url, tmp_path).lookup(QUERY)
    assert "damaged and counts as absent" in caplog.text
    (tmp_path / "away.db").rename(tmp_path / "plans.db")
    client(url, tmp_path).lookup(QUERY)
    (tmp_path / "plans.db").unlink()
    assert client(url, tmp_path).lookup(QUERY).answer.rung is Rung.EXACT


def test_where_nothing_can_be_kept_there_is_still_an_answer(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("a file where a directory should be")
    with caplog.at_level(logging.WARNING):
        assert client(url, tmp_path).lookup(QUERY).answer.rung is Rung.EXACT
    assert "could not be kept" in caplog.text


def test_many_writers_and_readers_never_see_half_an_answer(url: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom adapters.client import Client, _read\n"
        "from tests.adapters.test_client import QUERY\n"
        "client = Client(sys.argv[1], directory=Path(sys.argv[2]))\n"
        "for _ in range(20):\n"
        "    client.lookup(QUERY)\n"
        "    assert _read(client._path(QUERY)) is not None\n"
    )
    command = [sys.executable, "-c", code, url, str(tmp_path / "kept")]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in running] == [0] * 3
    assert len(list((tmp_path / "kept").iterdir())) == 1


class _Answers(http.server.BaseHTTPRequestHandler):
    status, body = 200, b"<html>"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (404, b"not ours"),
        (404, b"{}"),
        (502, b"bad gateway"),
        (503, b"{}"),
    ],
)
def test_whatever_else_answers_is_no_service(tmp_path: Path, status: int, body: bytes) -> None:
    handler = type("Handler", (_Answers,), {"status": status, "body": body})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(StoreError, match="answered"):
            client(f"http://127.0.0.1:{server.server_port}", tmp_path).lookup(QUERY)
        thread.join()


def test_an_address_has_every_part_escaped() -> None:
    query = replace(QUERY, model="a/b?c", toolchain=None, variant="x=1&y", shape="")
    assert (
        service_url("http://host/prefix/", query) == "http://host/prefix/v1/plans/a%2Fb%3Fc/-/v5e-2x4?variant=x%3D1%26y"
    )


def test_it_needs_neither_jax_nor_optuna_nor_numpy_nor_a_server() -> None:
    code = (
        "import sys\n"
        "for name in ('jax', 'optuna', 'numpy', 'starlette', 'uvicorn', 'alembic'): sys.modules[name] = None\n"
        "import adapters.client"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
