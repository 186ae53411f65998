"""A dashboard over a database that a test fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy import event
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from storage.views.view import database_of
from tests.storage.samples import plan, study_key, trial
from tests.storage.views.test_trials import TRIALS, made
from tuner.stores import Store

PAGES = (
    "/",
    "/?state=any&sort=-speedup",
    "/studies",
    "/studies/1",
    "/studies/1?state=rejected&sort=-bound",
    "/studies/1/trials/0",
    "/studies/1/trials/3",
    "/studies/1/trials/3/placement",
    "/plans/1",
    "/plans/2",
    "/plans/1/placement",
    "/compare",
    "/compare?a=plan-1&b=plan-2",
    "/compare?a=trial-1-0&b=trial-1-3",
)


@pytest.fixture
def url(migrated: str, tmp_path: Path) -> str:
    """URL of a database with a study of every kind of trial, and two versions of a plan."""
    path = tmp_path / "dashboard.db"
    path.write_bytes(Path(migrated).read_bytes())
    url = f"sqlite:///{path}"
    with storage.open_store(url) as store:
        key = study_key()
        study = store.open_study(key)
        store.save_trials(study.id, [made(number) for number in range(TRIALS)])
        store.count_refusals(study.id, {"indivisible": 3})
        store.promote(plan(2.0, study=key.name), note="there was no plan")
        store.promote(plan(1.0, study=key.name, trial=1), note="faster")
    return url


@pytest.fixture(autouse=True)
def unwearied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures follow every write at once."""
    monkeypatch.setattr("adapters.web.pages.study.FRESH_S", 0.0)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of an empty database to copy."""
    path = tmp_path_factory.mktemp("migrated") / "dashboard.db"
    storage.open_store(f"sqlite:///{path}", create=True).close()
    return str(path)


@pytest.fixture
def writer(url: str) -> Iterator[Store]:
    """The database of the dashboard, for a test to write to."""
    with storage.open_store(url) as store:
        yield store


@pytest.fixture
def client(url: str) -> Iterator[TestClient]:
    """A browser without scripts."""
    with TestClient(create_app(url)) as client:
        yield client


@contextmanager
def counted(client: TestClient) -> Iterator[list[str]]:
    """Collects the statements that requests make."""
    engine = database_of(client.app.state.store).engine  # type: ignore[attr-defined]
    statements: list[str] = []

    def note(connection: object, cursor: object, text: str, *rest: object) -> None:
        if not text.startswith("BEGIN"):
            statements.append(text)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


class Reader(HTMLParser):
    """Reads a page strictly: elements close, ids are unique, and what a browser would run is noted."""

    VOID = {"meta", "link", "input", "br", "hr", "img"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), f"<{tag}> repeats an attribute: {attrs}"
        self.tags.append((tag, given))
        if given.get("id") is not None:
            self.ids.append(str(given["id"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> in the wrong place"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    """Reads a page and checks what holds for every page."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids)), [i for i in reader.ids if reader.ids.count(i) > 1]
    for tag, given in reader.tags:
        assert tag != "style"
        assert tag != "script" or given.get("src"), "a script stands in the page"
        assert not any(name == "style" or name.startswith("on") for name in given), (tag, given)
        for name in ("href", "src", "action", "hx-get"):
            assert re.match(r"[/#?]|$", given.get(name) or ""), (tag, given)
    return reader


Fetch = Callable[[str], Reader]


@pytest.fixture
def fetch(client: TestClient) -> Fetch:
    """Fetches a page that is there and reads it."""

    def fetched(path: str) -> Reader:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= 200_000
        return read(answer.text)

    return fetched


def words(reader: Reader) -> str:
    """All that a page says, blanks made one."""
    return re.sub(r"\s+", " ", "".join(reader.text))


__all__ = ["PAGES", "counted", "read", "trial", "words"]
