"""What holds for every page."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from tests.adapters.web.pages.conftest import PAGES, Fetch, counted, read, words
from tests.storage.samples import plan, study_key, trial
from tuner.plans import files
from tuner.stores import Store

MOST_STATEMENTS = 18


def twin(page: str) -> str:
    path, _, query = page.partition("?")
    return ("/overview" if path == "/" else path) + ".json" + (f"?{query}" if query else "")


def strict(text: str) -> object:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("page", [page for page in PAGES if "trials/3/placement" not in page])
def test_every_page_is_whole_and_has_a_strict_twin(client: TestClient, fetch: Fetch, page: str) -> None:
    reader = fetch(page)
    headings = [tag for tag, _ in reader.tags if re.fullmatch(r"h\d", tag)]
    assert headings.count("h1") == 1
    assert headings[0] == "h1"
    assert all(given.get("scope") for tag, given in reader.tags if tag == "th")
    tables = [tag for tag, _ in reader.tags].count("table")
    assert [tag for tag, _ in reader.tags].count("caption") == tables
    answer = client.get(twin(page))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert strict(answer.text)
    asked = client.get(page, headers={"accept": "application/json"})
    assert asked.text == answer.text


@pytest.mark.parametrize("page", ["/", "/studies/1", "/studies/1/trials/0", "/plans/1", "/studies.json"])
def test_an_unchanged_answer_is_not_sent_again(client: TestClient, writer: Store, page: str) -> None:
    first = client.get(page)
    tag = first.headers["etag"]
    again = client.get(page, headers={"if-none-match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "no-cache" in first.headers["cache-control"]
    assert "Cookie" in first.headers["vary"]
    writer.save_trials(1, [trial(0, predicted_s=0.001, host="elsewhere")])
    writer.promote(plan(0.5, study=study_key().name))
    if page != "/studies.json" and not page.startswith("/plans"):
        assert client.get(page, headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize(
    "page",
    [
        "/nothing",
        "/studies/9",
        "/studies/9.json",
        "/studies/x",
        f"/studies/{2**70}",
        "/studies/1/trials/999",
        f"/studies/1/trials/{2**70}",
        "/studies/1/trials/3/placement",
        "/plans/9",
        "/plans/9/export",
        f"/plans/{2**70}",
        "/compare?a=plan-1&b=plan-9",
    ],
)
def test_what_is_not_there_is_404(client: TestClient, page: str) -> None:
    assert client.get(page).status_code == 404


@pytest.mark.parametrize(
    ("page", "hint"),
    [
        ("/studies/1?state=odd", "legal: running, complete"),
        ("/studies/1?sort=odd", "legal, with or without '-': number, bound"),
        ("/studies/1?after=x", "no whole number"),
        ("/studies/1?after=-1", "no whole number"),
        ("/studies/1?at=99999999999999999999", "no whole number"),
        ("/studies/1?after=999", "there is none"),
        ("/studies/1?text=" + "x" * 201, "at most 200"),
        ("/?evidence=hearsay", "legal: bound, predicted, measured"),
        ("/compare?a=plan-1&b=what", "plan-7 for plan 7"),
        ("/compare?a=plan-1&b=plan-one", "no whole number"),
    ],
)
def test_a_state_that_means_nothing_is_400_and_says_what_is_legal(client: TestClient, page: str, hint: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 400
    assert hint in answer.json()["detail"]


@pytest.mark.parametrize("page", [page for page in PAGES if "trials/3/placement" not in page])
def test_statements_do_not_grow_with_what_is_there(
    client: TestClient, writer: Store, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    client.get(page)  # opens the store
    writer.save_trials(1, [trial(50)])
    with counted(client) as few:
        assert client.get(page).status_code == 200
    for number in range(12):
        writer.open_study(study_key(space_revision=f"s{number}"))
        writer.promote(plan(1.0 - number / 100, study=study_key().name))
    writer.save_trials(1, [trial(number) for number in range(50, 150)])
    with counted(client) as many:
        assert client.get(page).status_code == 200
    assert len(many) <= len(few) <= MOST_STATEMENTS


def test_behind_a_proxy_every_link_keeps_the_prefix(url: str) -> None:
    with TestClient(create_app(url, root_path="/tools/mw")) as client:
        for page in PAGES:
            answer = client.get(f"/tools/mw{page}")
            if "trials/3/placement" in page:
                continue
            assert answer.status_code == 200, page
            for tag, given in read(answer.text).tags:
                for name in ("href", "src", "action", "hx-get"):
                    value = given.get(name)
                    assert not value or value.startswith(("/tools/mw/", "#")), (page, tag, given)
        for tag, given in read(client.get("/tools/mw/studies/1").text).tags:
            if tag in ("link", "script") and (given.get("href") or given.get("src")):
                assert client.get(str(given.get("href") or given.get("src"))).status_code == 200
        chosen = client.post("/tools/mw/theme", data={"theme": "dark"}, follow_redirects=False)
        assert chosen.headers["location"] == "/tools/mw/"
        assert "Path=/tools/mw" in chosen.headers["set-cookie"]


def test_the_theme_is_the_readers(client: TestClient) -> None:
    assert "data-theme" not in client.get("/").text
    chosen = client.post("/theme", data={"theme": "dark", "back": "/studies/1?sort=bound"}, follow_redirects=False)
    assert (chosen.status_code, chosen.headers["location"]) == (303, "/studies/1?sort=bound")
    assert '<html lang="en" data-theme="dark">' in client.get("/").text
    client.post("/theme", data={"theme": ""})
    assert "data-theme" not in client.get("/").text
    assert client.post("/theme", data={"theme": "<b>"}).status_code == 400
    client.cookies.set("theme", "<script>")
    assert "data-theme" not in client.get("/").text


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example/", "/\\evil.example", "/a\r\nX: y", ""])
def test_the_theme_never_leads_elsewhere(client: TestClient, back: str) -> None:
    answer = client.post("/theme", data={"theme": "dark", "back": back}, follow_redirects=False)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("page", ["/", "/studies", "/compare"])
def test_an_empty_database_has_its_pages(migrated: str, tmp_path: Path, page: str) -> None:
    path = tmp_path / "empty.db"
    path.write_bytes(Path(migrated).read_bytes())
    with TestClient(create_app(f"sqlite:///{path}")) as client:
        said = words(read(client.get(page).text))
        assert {"/": "No plan is stored yet", "/studies": "no studies yet", "/compare": "Name two"}[page] in said
        assert client.get("/studies/1").status_code == 404


def test_what_is_superseded_says_by_whom_and_why(fetch: Fetch) -> None:
    said = words(fetch("/plans/1"))
    assert "Superseded by plan 2, version 2: faster" in said
    assert "unchecked and gives plan 2" in said or "gives plan 2" in said
    newest = words(fetch("/plans/2"))
    assert "Superseded by" not in newest
    assert "gives this plan" in newest


def test_the_lines_that_apply_a_plan_find_it(url: str, client: TestClient) -> None:
    page = client.get("/plans/2").text
    code = unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL).group(1))  # type: ignore[union-attr]
    lines = code.replace("storage.open_store()", f"storage.open_store({url!r})").splitlines()
    names: dict[str, object] = {}
    exec("\n".join(line for line in lines if " apply" not in line and "= apply" not in line), names)
    assert names["answer"].plan.id == 2  # type: ignore[attr-defined]


def test_a_plan_is_exported_as_the_command_line_does(url: str, client: TestClient) -> None:
    answer = client.get("/plans/2/export")
    assert 'filename="plan-2.json"' in answer.headers["content-disposition"]
    with storage.open_store(url) as store:
        assert answer.text == files.dump(store.plan(2).plan)
    settings = client.get("/plans/2/export?as=maxdiffusion")
    assert "create_device_mesh" in settings.text
    assert "ici_context_parallelism" in client.get("/plans/2").text
    assert client.get("/plans/2/export?as=word").status_code == 400


def test_compare_names_every_difference(fetch: Fetch, client: TestClient) -> None:
    twin = client.get("/compare.json?a=trial-1-1&b=trial-1-2").json()
    assert {item["path"]: (item["left"], item["right"]) for item in twin["differences"]} == {
        "options: block": ("1", "2")
    }
    said = words(fetch("/compare?a=plan-1&b=trial-1-0"))
    assert "A figure is compared only with one of its own kind" in said
    assert "They are the same in layout" in words(fetch("/compare?a=plan-1&b=plan-1"))
