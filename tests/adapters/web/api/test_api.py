from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from adapters.web.limits import Limits
from tests.adapters.web.conftest import TOKEN
from tests.tuner.plans.samples import NOW, TOOLCHAIN, make_plan
from tuner.plans import answers
from tuner.plans.lookup import Rung
from tuner.plans.plan import Plan
from tuner.plans.workload import WorkloadKey

PLAN = "/v1/plans/wan/832x480x81/v5e-2x4"
OURS = {"toolchain": TOOLCHAIN.spelled}


def test_a_lookup_answers_as_the_store_does(client: TestClient, url: str) -> None:
    answer = client.get(PLAN, params=OURS)
    assert answer.status_code == 200
    with storage.open_store(url) as store:
        assert answers.from_json(answer.json()) == store.lookup("wan", "832x480x81", "v5e-2x4", TOOLCHAIN)
    assert answer.json()["rung"] == "exact"


@pytest.mark.parametrize(
    ("path", "query", "rung", "reason"),
    [
        (PLAN, {}, "unchecked", "was not checked"),
        (PLAN, {"toolchain": "jax=9,jaxlib=9,libtpu=9"}, "stale-toolchain", "libtpu 0.0.50.1 is now 9"),
        (
            PLAN,
            {"toolchain": f"{TOOLCHAIN.spelled};XLA_FLAGS=--b --a"},
            "stale-toolchain",
            "XLA_FLAGS absent is now --a --b",
        ),
        ("/v1/plans/wan/832x480x49/v5litepod-8", OURS, "near-shape", "made for 832x480x81"),
        ("/v1/plans/wan2.1-t2v-14b/832x480x81/v5e-2x4", OURS, "baseline", "no plan of wan2.1-t2v-14b"),
    ],
)
def test_the_rungs_below(client: TestClient, path: str, query: dict[str, str], rung: str, reason: str) -> None:
    answer = client.get(path, params=query).json()
    assert answer["rung"] == rung
    assert reason in " ".join(answer["reasons"])


@pytest.mark.parametrize(
    ("path", "query", "reason"),
    [
        ("/v1/plans/wan/832x480x81/v5e-4x4", {}, "no plan of wan for v5e-4x4"),
        (PLAN, {"revision": "9"}, "there are plans for '1'"),
        (PLAN, {"variant": "no-guidance"}, "no plan of wan (no-guidance)"),
        (PLAN, {"reserve_hbm_bytes": "99"}, "no plan keeps 99 bytes"),
        (PLAN, {"link": "0,0:1,0=0.5"}, "links 0,0:1,0=0.5"),
        ("/v1/plans/wan2.1-t2v-14b/832x480x80/v5e-2x4", {}, "832x480x81"),
        ("/v1/plans/wan/832x480x81/v5e-3x3", {}, "v5e-3x3"),
        ("/v1/plans/wan/832x480x81/quack", {}, "is not the name of a slice"),
        ("/v1/plans/77", {}, "no plan 77"),
        ("/v1/trials", {"study": "77"}, "no study 77"),
    ],
)
def test_none_is_404_with_the_reasons(client: TestClient, path: str, query: dict[str, str], reason: str) -> None:
    answer = client.get(path, params=query)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert reason in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/plans/w%00n/832x480x81/v5e-2x4", "model"),
        ("/v1/plans/" + "w" * 300 + "/832x480x81/v5e-2x4", "1 to 256 characters"),
        (PLAN + "?toolchain=new", "is not like jax="),
        (PLAN + "?toolchain=jax=1,jaxlib=1,libtpu=1;PATH=/bin", ";XLA_FLAGS=..."),
        (PLAN + "?toolchain=" + "j" * 5000, "longer than 4096"),
        (PLAN + "?revison=1", "no query parameter 'revison'"),
        (PLAN + "?revision=1&revision=2", "more than once"),
        (PLAN + "?reserve_hbm_bytes=-1", "whole numbers"),
        (PLAN + "?reserve_hbm_bytes=" + "9" * 5000, "whole numbers"),
        (PLAN + "?link=nowhere", "0,0:1,0=0.5"),
        ("/v1/plans/0", "plan id"),
        ("/v1/plans/99999999999999999999", "plan id"),
        ("/v1/trials", "study is missing"),
        ("/v1/trials?study=1&limit=0", "limit"),
        ("/v1/trials?study=1&limit=1001", "from 1 to 1000"),
        ("/v1/trials?study=1&state=lost", "legal: running"),
        ("/v1/trials?study=%C2%B2", "study"),
    ],
)
def test_what_is_not_legal_is_400_and_says_what_is(client: TestClient, path: str, reason: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400, answer.text
    assert reason in answer.json()["detail"]


def test_an_answer_that_still_stands_is_304_until_it_changes(client: TestClient, url: str) -> None:
    tag = client.get(PLAN).headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}'):
        again = client.get(PLAN, headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(PLAN, params=OURS, headers={"If-None-Match": tag}).status_code == 200
    with storage.open_store(url) as store:
        store.promote(make_plan(step_s=0.4, created_at=NOW + timedelta(days=1)))
    newer = client.get(PLAN, headers={"If-None-Match": tag})
    assert (newer.status_code, newer.json()["version"], newer.json()["plan"]["step_s"]) == (200, 2, 0.4)


def test_a_plan_that_is_known_is_not_read_again(client: TestClient) -> None:
    client.get(PLAN)
    statements: list[str] = []

    def note(connection, cursor, statement, *rest):  # type: ignore[no-untyped-def]
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert client.get(PLAN).status_code == 200
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    (statement,) = [text for text in statements if not text.startswith("BEGIN")]
    assert "document" not in statement


def test_a_workload_without_shapes(client: TestClient, url: str) -> None:
    with storage.open_store(url) as store:
        store.promote(make_plan(workload=WorkloadKey(model="examples.block:workload", shape="")))
    answer = client.get("/v1/plans/examples.block:workload/-/v5e-2x4")
    assert answers.from_json(answer.json()).rung is Rung.UNCHECKED


def test_trials_come_in_pages_by_key(client: TestClient) -> None:
    seen, after = [], {}
    for _ in range(2):
        page = client.get("/v1/trials", params={"study": 1, "limit": 2} | after).json()
        seen += [trial["number"] for trial in page["trials"]]
        after = {"after": page["next"]}
    assert (seen, page["next"]) == ([0, 1, 2], None)
    rejected = client.get("/v1/trials", params={"study": 1, "state": "rejected"}).json()
    assert rejected == {"study": 1, "trials": [], "next": None}


def test_a_page_costs_the_same_statements_however_much_there_is(client: TestClient, url: str) -> None:
    def statements(after: int) -> int:
        found: list[str] = []

        def note(connection, cursor, statement, *rest):  # type: ignore[no-untyped-def]
            found.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert len(client.get("/v1/trials", params={"study": 1, "after": after, "limit": 2}).json()["trials"]) == 2
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        return len(found)

    client.get("/readyz")
    few = statements(0)
    with storage.open_store(url) as store:
        first = store.trials(1, limit=1)[0]
        store.save_trials(1, [replace(first, number=number) for number in range(3, 500)])
    assert statements(450) == few


def test_without_a_token_nothing_is_written(client: TestClient) -> None:
    for action in ("promote", "retire"):
        answer = client.post(f"/v1/plans/1/{action}", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 403
    assert client.get("/v1/plans/1").json()["state"] == "active"


@pytest.mark.parametrize("sent", [None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", "Bearer \xff"])
def test_a_wrong_token_writes_nothing(writer: TestClient, sent: str | None) -> None:
    headers = {} if sent is None else {"Authorization": sent.encode("latin-1")}
    answer = writer.post("/v1/plans/1/retire", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert writer.get("/v1/plans/1").json()["state"] == "active"


def test_with_the_token_plans_are_retired_and_promoted(writer: TestClient) -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    retired = writer.post("/v1/plans/1/retire", json={"note": "gave NaN"}, headers=token).json()
    assert (retired["state"], retired["note"]) == ("retired", "gave NaN")
    assert writer.get(PLAN).status_code == 404
    promoted = writer.post("/v1/plans/1/promote", headers=token).json()
    assert (promoted["id"], promoted["version"], promoted["state"]) == (2, 2, "active")
    assert writer.get(PLAN).json()["id"] == 2
    assert writer.post("/v1/plans/9/promote", headers=token).status_code == 404


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"note": 1}', b'{"note": ""}', b'{"why": "x"}', b"[" * 100_000, b"\xff"]
)
def test_a_body_that_is_not_legal_is_400(writer: TestClient, body: bytes) -> None:
    answer = writer.post("/v1/plans/1/retire", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400
    assert writer.get("/v1/plans/1").json()["state"] == "active"


def test_other_methods_are_405(client: TestClient) -> None:
    answer = client.delete(PLAN)
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
    assert "GET" in answer.headers["allow"]


@pytest.fixture
def hurried(url: str) -> Iterator[TestClient]:
    with TestClient(create_app(url, limits=Limits(time_s=0.0)), raise_server_exceptions=False) as client:
        yield client


def test_what_takes_too_long_is_503(hurried: TestClient) -> None:
    answer = hurried.get(PLAN)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "did not answer within 0 s" in answer.json()["detail"]


def test_metrics_count_lookups_by_rung_and_say_whether_the_database_is_there(client: TestClient) -> None:
    client.get(PLAN)
    text = client.get("/metrics").text
    assert 'meshwright_lookups_total{rung="unchecked"} 1.0' in text
    assert 'meshwright_http_answers_total{status="200"} 1.0' in text
    assert "meshwright_database_up 1.0" in text
    with TestClient(create_app("sqlite:////no/such/file.db")) as away:
        assert "meshwright_database_up 0.0" in away.get("/metrics").text


def test_the_served_plan_is_the_whole_document(client: TestClient) -> None:
    assert Plan.from_json(client.get(PLAN).json()["plan"]) == Plan.from_json(make_plan().to_json())
