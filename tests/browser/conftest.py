"""A browser, and the service over a real Wan study with trials enough to page through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import storage
from tests.adapters.web.study import wan_study
from tests.browser import chromium
from tests.browser.service import serving
from tuner.layouts.layout import Candidate, Layout
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.stores import Trial, TrialState

HOSTILE = (
    "<script>window.taken=1</script><img src=//elsewhere.example/x onerror=window.taken=1>\u202e\x07" + "w" * 10_000
)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    path = chromium.find()
    if path is None:
        pytest.skip(f"there is no chromium here; install it, or name one in {chromium.NAMED}")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        yield launched
        launched.close()


@dataclass
class Watch:
    """What a page did that it should not do."""

    faults: list[str] = field(default_factory=list)

    def over(self, context: Any) -> None:
        """Watches a browser context, and lets it speak to nobody but this machine."""
        context.route("**/*", self._request)
        context.on("console", lambda message: message.type in ("error", "warning") and self._note(message.text))
        context.on("weberror", lambda error: self._note(str(error.error)))
        context.on("response", lambda answer: answer.status >= 400 and self._note(f"{answer.status} {answer.url}"))

    def _request(self, route: Any) -> None:
        if urlsplit(route.request.url).hostname == "127.0.0.1":
            route.continue_()
        else:
            self._note(f"asked for {route.request.url}")
            route.abort()

    def _note(self, fault: str) -> None:
        self.faults.append(fault)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Returns a function that opens a page of its own with a context's options; faults of any page fail the test."""
    contexts, watch = [], Watch()

    def opened(address: str, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_default_timeout(30_000)
        contexts.append(context)
        watch.over(context)
        page = context.new_page()
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert watch.faults == []


@pytest.fixture(scope="package")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Wan study with 120 more layouts that did not fit, and one whose words are hostile."""
    url = wan_study(tmp_path_factory.mktemp("browser") / "wan.db")
    with storage.open_store(url) as store:
        (study,) = store.studies()
        trials = store.trials(study.id)
        like = next(trial for trial in trials if trial.rejection is not None)
        more = [replace(like, number=len(trials) + k, candidate=numbered(like, k)) for k in range(120)]
        store.save_trials(study.id, [*more, hostile(like, len(trials) + len(more))])
    return url


def numbered(like: Trial, k: int) -> Candidate:
    """A candidate that differs in an option."""
    return replace(like.candidate, layout=like.candidate.layout.replace_options(copy=k))


def hostile(like: Trial, number: int) -> Trial:
    """A trial with markup, control characters and 10 kB of text in every word of it."""
    layout = Layout.of(dict(like.candidate.layout.axes), {"name": HOSTILE})
    return replace(
        like,
        number=number,
        candidate=Candidate(layout=layout, compiler_options=((HOSTILE, HOSTILE),)),
        state=TrialState.REJECTED,
        rejection=Rejection(stage=Stage.SCREEN, reason=RejectReason.HBM, detail=HOSTILE),
        host=HOSTILE,
    )


@pytest.fixture(scope="package")
def service(database: str) -> Iterator[str]:
    with serving(database) as address:
        yield address


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A service over a study that a test may change; gives the address and the database's URL."""
    url = wan_study(tmp_path / "live.db")
    with serving(url) as address:
        yield address, url
