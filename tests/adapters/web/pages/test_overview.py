"""The overview: plans in service, what runs, what the last night did."""

from __future__ import annotations

import re
from datetime import timedelta

from starlette.testclient import TestClient

from adapters.web.pages.download import cell
from tests.adapters.web.pages.conftest import Fetch, read, words
from tests.storage.samples import NEW, NOON, OLD, plan, study_key, workload
from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, EntryReport, NightReport
from tuner.nightly.staleness import Due
from tuner.stores import Store


def night(writer: Store) -> None:
    def entry(name: str, ending: Ending, **more: object) -> EntryReport:
        values = {"due": Due.STALE, "why": "another compiler", "evidence": "predicted"} | more
        return EntryReport(name=name, ending=ending, **values)  # type: ignore[arg-type]

    report = NightReport(
        state=NightState.COMPLETE,
        started_at=NOON,
        finished_at=NOON + timedelta(hours=2),
        host="night-host",
        wall_spent_s=7200.0,
        entries=(
            entry("faster on v5e-2x4", Ending.PROMOTED, before_s=1.0, after_s=0.8, plan_after=1),
            entry("same on v5e-2x4", Ending.KEPT, before_s=1.0, after_s=1.0),
            entry("broken on v5e-2x4", Ending.FAILED, detail="<b>no compiler</b>"),
        ),
    )
    writer.save_night(
        None,
        state=report.state,
        must_look=True,
        started_at=report.started_at,
        finished_at=report.finished_at,
        document=report.to_json(),
    )


def test_the_last_night_says_what_became_better_and_what_failed(
    fetch: Fetch, client: TestClient, writer: Store
) -> None:
    assert "No night was run" in words(fetch("/"))
    night(writer)
    said = words(fetch("/"))
    assert "someone must look" in said
    assert "1 promoted, 1 kept, 1 failed" in said
    assert re.search(r"faster on v5e-2x4 ?1,000.0 ?800.0", said)
    assert "broken on v5e-2x4 failed: <b>no compiler</b>" in said
    document = client.get("/overview.json").json()["night"]
    assert document["improved"][0]["name"] == "faster on v5e-2x4"


def test_a_night_of_a_newer_version_is_a_page_too(fetch: Fetch, writer: Store) -> None:
    writer.save_night(
        None,
        state=NightState.RUNNING,
        must_look=False,
        started_at=NOON,
        finished_at=None,
        document={"schema_version": 99},
    )
    assert "a newer version wrote its report" in words(fetch("/"))


def test_a_plan_of_another_toolchain_is_stale(fetch: Fetch, writer: Store) -> None:
    assert "stale" not in words(fetch("/"))
    writer.promote(plan(1.0, toolchain=OLD, workload=workload(shape="480x272x81")))
    assert words(fetch("/")).count("stale") == 1
    writer.open_study(study_key(toolchain=OLD))
    said = words(fetch("/"))
    assert f"libtpu {NEW.libtpu} stale" in said
    assert f"libtpu {OLD.libtpu} stale" not in said


def test_the_table_of_plans_filters_sorts_and_tells_its_url(client: TestClient, writer: Store) -> None:
    for number in range(60):
        writer.promote(plan(1.0 + number, workload=workload(shape=f"16x16x{number + 1}")))
    answer = client.get("/plans/table?text=16x16&sort=-step")
    assert answer.headers["hx-push-url"] == "/?text=16x16&sort=-step"
    ids = re.findall(r'<a id="plan-(\d+)"', answer.text)
    assert len(ids) == 50
    assert ids == sorted(ids, key=int, reverse=True)
    following = re.search(r'<a id="page-next" href="([^"]+)"', answer.text).group(1)  # type: ignore[union-attr]
    rest = re.findall(r'<a id="plan-(\d+)"', client.get(following.replace("&amp;", "&")).text)
    assert len(rest) == 10
    assert not set(ids) & set(rest)
    lines = client.get("/plans.csv?text=16x16").text.splitlines()
    assert len(lines) == 61
    assert lines[0].startswith("id,version,state,model")
    assert read(client.get("/?state=superseded").text)
    assert "No plan is like that" in client.get("/?text=nothing+like+it").text


def test_cells_of_a_download() -> None:
    assert [cell(value) for value in (None, True, 3, 0.5, float("inf"), float("nan"), NOON)] == [
        "",
        "yes",
        "3",
        "0.5",
        "inf",
        "",
        "2026-01-02T12:00:00+00:00",
    ]
