from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from adapters.web.limits import Limits
from adapters.web.security import HEADERS
from tests.tuner.plans.samples import make_plan
from tuner.errors import StoreError


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/nowhere", "/v1/nowhere", "/static/nothing.js"])
def test_every_answer_carries_the_security_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_probes(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_missing_database_is_503_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    with TestClient(create_app(f"sqlite:///{path}"), raise_server_exceptions=False) as client:
        assert client.get("/healthz").status_code == 200
        away = client.get("/readyz")
        assert away.status_code == 503
        assert away.headers["content-type"] == "application/problem+json"
        assert "no such database" in away.json()["detail"]
        assert not path.exists()
        storage.open_store(f"sqlite:///{path}", create=True).close()
        assert client.get("/readyz").status_code == 200


def test_without_a_token_the_database_itself_refuses_changes(url: str) -> None:
    with storage.open_store(url, read_only=True) as store:
        with pytest.raises(StoreError, match="readonly"):
            store.promote(make_plan())
        assert len(store.plans(active_only=False)) == 1


@pytest.fixture
def narrow(url: str) -> Iterator[TestClient]:
    limits = Limits(body_bytes=100, target_bytes=200, header_bytes=500)
    with TestClient(create_app(url, limits=limits), raise_server_exceptions=False) as client:
        yield client


def test_long_bodies_and_targets_are_refused(narrow: TestClient) -> None:
    assert narrow.get("/healthz?" + "a" * 300).status_code == 414
    assert narrow.post("/healthz", content=b"a" * 101).status_code == 413
    assert narrow.post("/v1/plans/1/retire", content=iter([b"a" * 60, b"a" * 60])).status_code == 413
    assert narrow.get("/healthz", headers={"x": "a" * 600}).status_code == 431
    assert narrow.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/prefix/healthz"])
def test_a_proxy_may_keep_or_strip_its_prefix(url: str, path: str) -> None:
    with TestClient(create_app(url, root_path="/prefix")) as client:
        assert client.get(path).status_code == 200


def test_an_error_page_shows_a_path_as_text(client: TestClient) -> None:
    answer = client.get("/<script>", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert "<script>" not in answer.text


def test_a_server_that_is_away_is_503(tmp_path: Path) -> None:
    limits = Limits(time_s=5)
    app = create_app("postgresql://nobody@127.0.0.1:9/none", limits=limits)
    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("/readyz", "/v1/plans/wan/832x480x81/v5e-2x4", "/v1/trials?study=1"):
            answer = client.get(path)
            assert answer.status_code == 503, path
            assert "nobody@127.0.0.1:9" in answer.json()["detail"] or "did not answer" in answer.json()["detail"]
        assert client.get("/healthz").status_code == 200
