"""The page of a study: odd studies are pages like any other, tables page and filter, changes come live."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from datetime import timedelta

import pytest
from sqlalchemy import insert
from starlette.testclient import TestClient

import storage
from adapters.web.pages.study import StudyPages
from storage.schema import TrialRow
from storage.sql.studies import trial_columns
from storage.views.view import database_of
from tests.adapters.web.pages.conftest import Fetch, counted, read, words
from tests.storage.samples import NOON, grid, study_key, trial
from tests.storage.views.test_trials import INDIVISIBLE, TRIALS
from tuner.plans.plan import Evidence
from tuner.rejections import Stage
from tuner.stores import ContentKey, Store, Trial, TrialState


def numbers(page: str) -> list[int]:
    """Trials in the table, in their order."""
    return [int(number) for number in re.findall(r'<a id="trial-(\d+)"', page)]


def add(writer: Store, name: str, trials: list[Trial]) -> str:
    study = writer.open_study(study_key(space_revision=name))
    if trials:
        writer.save_trials(study.id, trials)
    return f"/studies/{study.id}"


def pending(number: int, state: TrialState = TrialState.RUNNING) -> Trial:
    return trial(
        number,
        state=state,
        stage=Stage.COMPILE,
        predicted_s=None,
        estimate_s=None,
        numbers={},
        placement=None,
        details={},
        finished_at=None,
        baseline="",
    )


ODD: dict[str, list[Trial]] = {
    "empty": [],
    "running": [pending(0), pending(1)],
    "failed": [pending(number, TrialState.FAILED) for number in range(3)],
    "interrupted": [pending(0, TrialState.INTERRUPTED), pending(1, TrialState.SUPERSEDED)],
    "rejected": [
        trial(
            number,
            state=TrialState.REJECTED,
            stage=Stage.ENUMERATE,
            rejection=INDIVISIBLE,
            bound_s=None,
            estimate_s=None,
            predicted_s=None,
            numbers={},
            placement=None,
            details={},
            lowered_digest="",
            host="",
            started_at=None,
            finished_at=None,
        )
        for number in range(2)
    ],
    "infinite": [
        trial(0, predicted_s=math.inf, measured_s=math.nan, numbers={"exposed_s": math.inf, "compute_s": math.nan}),
        trial(1, predicted_s=math.nan, bound_s=-math.inf, estimate_s=math.nan),
        trial(2, predicted_s=0.0, measured_s=0.0, numbers={"memory_bytes": 0.0, "default_step_s": 0.0}),
        trial(3, predicted_s=1e300, measured_s=1e-300),
    ],
    "half-written": [
        trial(0, finished_at=None, placement=None, details={"step_s": "NaN"}, numbers={}),
        trial(1, state=TrialState.COMPLETE, stage=Stage.PLACE, predicted_s=None, finished_at=None, details={}),
        trial(2, state=TrialState.REJECTED, rejection=None, predicted_s=None),
        trial(3, started_at=None, finished_at=NOON, lowered_digest="", details={"collectives": 3}),
    ],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_studies_are_pages_like_any_other(client: TestClient, fetch: Fetch, writer: Store, name: str) -> None:
    """Cases 18, 19 and 20: infinities, trials without any number, studies of running and failed trials alone."""
    page = add(writer, name, ODD[name])
    said = words(fetch(page))
    assert f"{len(ODD[name])} trials" in said
    for path in (f"{page}.json", f"{page}/trials.csv", f"{page}/live", f"{page}/trials", "/studies", "/studies.json"):
        assert client.get(path).status_code == 200
    for number in range(len(ODD[name])):
        fetch(f"{page}/trials/{number}")
        twin = client.get(f"{page}/trials/{number}.json")
        json.loads(twin.text, parse_constant=pytest.fail)


def test_infinities_and_missing_values_are_signs(fetch: Fetch, client: TestClient, writer: Store) -> None:
    page = add(writer, "infinite", ODD["infinite"])
    rows = re.findall(r"<tr class=.*?</tr>", client.get(f"{page}?sort=number").text, re.DOTALL)
    cells = [re.findall(r'<td class="n (\w+)">([^<]*)</td>', row) for row in rows]
    assert cells[0][:4] == [("bound", "100.0"), ("predicted", "∞"), ("measured", "—"), ("predicted", "∞")]
    assert cells[1][:2] == [("bound", "\N{MINUS SIGN}∞"), ("predicted", "—")]
    twin = client.get(f"{page}.json?sort=number").json()["table"]["trials"]["rows"]
    assert (twin[0]["predicted_s"], twin[0]["measured_s"], twin[1]["bound_s"]) == ("Infinity", "NaN", "-Infinity")


def test_a_measured_study_goes_by_measurements(client: TestClient, fetch: Fetch, writer: Store) -> None:
    study = writer.open_study(study_key(evidence=Evidence.MEASURED))
    writer.save_trials(
        study.id,
        [
            trial(number, stage=Stage.MEASURE, predicted_s=0.1 + number, measured_s=1.0 - number / 10)
            for number in range(5)
        ],
    )
    page = f"/studies/{study.id}"
    said = words(fetch(page))
    assert "best: trial 4 4,100.0 ms predicted 600.0 ms measured" in said
    assert "Rank agreement \N{MINUS SIGN}1.00 (Spearman)" in said
    assert re.search("predicted in ?study 1", said)
    assert numbers(client.get(page).text) == [4, 3, 2, 1, 0]
    assert numbers(client.get(f"{page}?sort=predicted").text) == [0, 1, 2, 3, 4]
    assert re.search(f"measured in ?study {study.id}", words(fetch("/studies/1")))


def test_a_trial_without_numbers_says_why(fetch: Fetch, writer: Store) -> None:
    page = add(writer, "rejected", ODD["rejected"])
    assert "indivisible heads 12 % 8: legal are 1, 2, 3, 4, 6, 12" in words(fetch(page))
    said = words(fetch(f"{page}/trials/0"))
    assert "Rejected by enumerate: indivisible. heads 12 % 8: legal are" in said
    assert "bound no step can be faster—" in said


def test_a_prediction_never_looks_like_a_measurement(client: TestClient, fetch: Fetch) -> None:
    page = client.get("/studies/1?sort=number").text
    row = re.search(r'<tr class="complete">.*?</tr>', page, re.DOTALL).group()  # type: ignore[union-attr]
    assert '<td class="n predicted">500.0</td>' in row
    assert '<td class="n measured">300.0</td>' in row
    said = words(fetch("/studies/1/trials/0"))
    assert "step predicted500.0 ms" in said
    assert "step measured300.0 ms" in said


def test_the_funnel_counts_what_was_rejected_and_why(client: TestClient, fetch: Fetch) -> None:
    rows = client.get("/studies/1.json").json()["progress"]["counts"]
    assert rows["refusals"] == [["indivisible", 3]]
    said = words(fetch("/studies/1"))
    assert re.search(
        r"enumerate ?40 ?8 ?indivisible 5, indivisible 3|enumerate ?40 ?8 ?indivisible 3, indivisible 5", said
    )
    assert re.search(r"compile ?32 ?5 ?hbm 5", said)


def test_filters_and_sorts_are_in_the_url_and_in_the_form(client: TestClient) -> None:
    page = client.get("/studies/1?state=rejected&reason=hbm&text=WORKER&sort=-number").text
    assert numbers(page) == [33, 26, 19, 12, 5]
    reader = read(page)
    chosen = {given["value"] for tag, given in reader.tags if tag == "option" and "selected" in given}
    assert {"rejected", "hbm"} <= chosen
    (text,) = [given for tag, given in reader.tags if tag == "input" and given.get("type") == "search"]
    assert text["value"] == "WORKER"
    assert 'aria-sort="descending"' in page
    links = [given["href"] for tag, given in reader.tags if (given.get("id") or "").startswith("sort-")]
    assert len(links) > 5
    assert all("state=rejected&reason=hbm&text=WORKER&sort=" in str(link) for link in links)


def test_walking_the_pages_shows_every_trial_once(client: TestClient, writer: Store) -> None:
    page = add(writer, "many", [trial(number, predicted_s=1 / (1 + number % 9)) for number in range(170)])
    seen, path = [], f"{page}?sort=predicted"
    for _ in range(5):
        answer = client.get(path).text
        seen += numbers(answer)
        (following,) = re.findall(r'<a id="page-next" href="([^"]*)"', answer) or [""]
        if not following:
            break
        path = following.replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 170
    assert seen == sorted(range(170), key=lambda number: (1 / (1 + number % 9), number))
    jumped = numbers(client.get(f"{page}?sort=number&at=120").text)
    assert jumped == list(range(120, 170))


def test_the_table_alone_tells_the_browser_its_url(client: TestClient) -> None:
    answer = client.get("/studies/1/trials?state=complete&sort=-bound&after=0")
    assert answer.headers["hx-push-url"] == "/studies/1?state=complete&sort=-bound&after=0"
    assert read(answer.text).tags[0][1]["id"] == "trials"
    assert 'hx-trigger="every' not in answer.text  # a page in the middle stays as it is
    first = client.get("/studies/1/trials?state=complete")
    assert 'hx-trigger="every' in first.text


def test_what_is_live_is_sent_only_if_something_changed(client: TestClient, writer: Store) -> None:
    page = client.get("/studies/1").text
    live, table = (
        next(str(given["hx-get"]) for _, given in read(page).tags if given.get("id") == name)
        for name in ("progress", "trials")
    )
    assert client.get(table).status_code == 204
    writer.save_trials(1, [trial(TRIALS, predicted_s=0.0001), pending(TRIALS + 1)])
    changed = client.get(live)
    assert changed.status_code == 200
    assert f"trial {TRIALS}</a>" in changed.text
    assert 'hx-trigger="every 3s"' in changed.text
    rows = client.get(table)
    assert rows.status_code == 200
    assert "hx-push-url" not in rows.headers
    assert numbers(rows.text)[0] == TRIALS
    again = next(str(given["hx-get"]) for _, given in read(changed.text).tags if given.get("id") == "progress")
    client.get(again)
    assert (
        client.get(next(str(g["hx-get"]) for _, g in read(rows.text).tags if g.get("id") == "trials")).status_code
        == 204
    )


def test_running_workers_are_shown_with_their_leases(fetch: Fetch, writer: Store) -> None:
    page = add(writer, "leased", [pending(0), pending(1)])
    key = study_key(space_revision="leased")
    content = ContentKey(
        workload_digest=key.workload.digest,
        slice_name=key.slice.name,
        wrap=key.slice.wrap,
        toolchain_digest=key.toolchain.digest,
        candidate_digest=pending(1).candidate.digest,
    )
    writer.claim(f"compile/{content.digest}", owner="host-9/77/abcd", ttl_s=60)
    said = words(fetch(page))
    assert "host-9/77/abcd" in said
    assert "running 2 trials" in said
    assert "host-9/77/abcd" in words(fetch("/"))


def test_a_download_holds_every_trial_and_no_formula(client: TestClient, writer: Store) -> None:
    bad = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\N{FULLWIDTH EQUALS SIGN}1"]
    page = add(writer, "csv", [trial(n, host=host, predicted_s=-0.5) for n, host in enumerate(bad)])
    answer = client.get(f"{page}/trials.csv?sort=number")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["host"] for row in rows] == [f"'{host}" for host in bad]
    assert [row["predicted_s"] for row in rows] == ["-0.5"] * len(bad)
    assert rows[0]["layout"] == "cfg=2 ulysses=4 [block=0 weights=replicated]"
    assert rows[0]["evidence"] == Evidence.PREDICTED.value
    chosen = client.get("/studies/1/trials.csv?state=rejected&reason=hbm&sort=number")
    assert [row["number"] for row in csv.DictReader(io.StringIO(chosen.text))] == ["5", "12", "19", "26", "33"]


@pytest.fixture
def large(writer: Store) -> str:
    """Case 17: 50,000 trials."""
    study = writer.open_study(study_key(space_revision="large"))
    row = trial_columns(study.id, trial(0), grid(2, 4))
    rows = [
        row
        | {
            "number": number,
            "predicted_s": 1 + (number * 7919 % 50_000) / 1e4,
            "finished_at": NOON + timedelta(seconds=number),
            "baseline": "",
        }
        for number in range(50_000)
    ]
    with database_of(writer).write() as session:
        session.execute(insert(TrialRow), rows)
    return f"/studies/{study.id}"


def test_fifty_thousand_trials(client: TestClient, fetch: Fetch, writer: Store, large: str) -> None:
    client.get("/studies/1")
    took = []
    for number in range(3):  # each revision is new to the dashboard
        writer.save_trials(int(large.rpartition("/")[2]), [trial(number)])
        started = time.process_time()  # a busy machine proves nothing
        page = client.get(large)
        took.append(time.process_time() - started)
    assert min(took) < 1.0
    assert "50,000 trials" in words(read(page.text))
    assert len(page.content) < 200_000
    fetch(f"{large}?sort=number&at=49990")
    fetch(f"{large}?sort=-predicted&after=100")
    with counted(client) as statements:
        assert client.get(f"{large}/trials?sort=finished&after=25000").status_code == 200
    assert len(statements) < 12


def test_importance_is_computed_beside_the_pages_and_kept(url: str, writer: Store) -> None:
    pages = StudyPages()
    study = writer.open_study(study_key(space_revision="importance"))
    writer.save_trials(study.id, [trial(number, predicted_s=1.0 + number % 5) for number in range(20)])
    try:
        first = pages.importances.get(url, study.id, "r1", 20)
        assert first.state == "computing"
        pages.importances.wait(60)
        found = pages.importances.get(url, study.id, "r1", 20)
        assert (found.state, found.trials, found.revision) == ("ready", 20, "r1")
        assert [name for name, _ in found.shares] == ["block"]
        # While a newer one is computed, the last one is shown.
        assert pages.importances.get(url, study.id, "r2", 20) == found
        pages.importances.wait(60)
        assert pages.importances.get(url, study.id, "r2", 20).revision == "r2"
        assert pages.importances.get(url, study.id, "r3", 1).state == "too-few"
        pages.importances.get("sqlite:////nowhere.db", 7, "r1", 20)
        pages.importances.wait(60)
        assert pages.importances.get("sqlite:////nowhere.db", 7, "r1", 20).state == "failed"
    finally:
        pages.close()


def test_the_dashboard_never_holds_a_writer_up(url: str, client: TestClient) -> None:
    """Case 21: readers in the middle of a download, and writers go on."""
    with client.stream("GET", "/studies/1/trials.csv") as answer, storage.open_store(url) as store:
        store.save_trials(1, [trial(number) for number in range(60)])
        assert answer.read().count(b"\n") >= TRIALS
