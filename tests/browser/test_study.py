"""The page of a study: filters, paging, the back button, and what happens while a search runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import storage
from tuner.rejections import Stage
from tuner.stores import TrialState

pytestmark = pytest.mark.browser

ROWS = "#trials tbody tr"


def count_of(page: Any) -> str:
    return str(page.locator("#trials .over p").inner_text())


def test_filters_change_the_table_and_the_address(open_page: Any, service: str) -> None:
    page = open_page(f"{service}/studies/1")
    assert count_of(page).startswith("142 trials")
    page.get_by_label("State").select_option("complete")
    page.locator("#trials .over p", has_text="6 match").wait_for()
    assert "state=complete" in page.url
    assert page.locator(ROWS).count() == 6
    page.get_by_label("Layout, reason or host").press_sequentially("ring=2")
    page.locator("#trials .over p", has_text="2 match").wait_for()
    assert "text=ring" in page.url
    page.reload()
    assert count_of(page).startswith("2 match")
    assert page.get_by_label("State").input_value() == "complete"
    page.get_by_role("link", name="show all").click()
    page.locator("#trials .over p", has_text="142 trials").wait_for()


def test_a_table_is_paged_by_key_and_sorted_and_back_goes_back(open_page: Any, service: str) -> None:
    page = open_page(f"{service}/studies/1")
    first = page.locator(f"{ROWS} th").all_inner_texts()
    assert first[0] == "17"
    page.get_by_role("link", name="Next").click()
    page.locator("#page-prev").wait_for()
    second = page.locator(f"{ROWS} th").all_inner_texts()
    assert len(first) == len(second) == 50
    assert not set(first) & set(second)
    page.locator("#sort-number").click()
    page.locator("#trials th[aria-sort] #sort-number").wait_for()
    assert page.locator(f"{ROWS} th").first.inner_text() == "0"
    page.go_back()
    page.locator("#page-prev").wait_for()
    assert page.locator(f"{ROWS} th").all_inner_texts() == second
    page.go_back()
    page.locator(f"{ROWS} th", has_text="17").first.wait_for()
    assert page.locator(f"{ROWS} th").all_inner_texts() == first


def test_back_from_a_trial_returns_to_the_filtered_table(open_page: Any, service: str) -> None:
    page = open_page(f"{service}/studies/1?state=complete")
    page.locator("#trial-18").click()
    page.locator("h1", has_text="Trial 18").wait_for()
    page.go_back()
    page.locator("#trials .over p", has_text="6 match").wait_for()
    assert page.get_by_label("State").input_value() == "complete"


def test_the_table_and_filters_work_without_scripts(open_page: Any, service: str) -> None:
    page = open_page(f"{service}/studies/1", java_script_enabled=False)
    page.get_by_label("State").select_option("rejected")
    page.get_by_role("button", name="Filter").click()
    assert "state=rejected" in page.url
    assert count_of(page).startswith("136 match")
    page.get_by_role("link", name="Next").click()
    assert page.locator(ROWS).count() == 50


def test_a_running_study_updates_itself(open_page: Any, live: tuple[str, str]) -> None:
    address, url = live
    with storage.open_store(url) as store:
        (study,) = store.studies()
        like = next(trial for trial in store.trials(study.id) if trial.number == 17)
        running = replace(
            like,
            number=21,
            state=TrialState.RUNNING,
            stage=Stage.COMPILE,
            candidate=replace(like.candidate, layout=like.candidate.layout.replace_options(copy=1)),
            predicted_s=None,
            numbers={},
            details={},
            finished_at=None,
        )
        store.save_trials(study.id, [running])
        page = open_page(f"{address}/studies/1?sort=-number")
        row = page.locator("#trials tr", has=page.locator("#trial-21"))
        assert "running" in row.inner_text()
        ended = replace(running, state=TrialState.COMPLETE, stage=Stage.PLACE, predicted_s=1.25)
        store.save_trials(study.id, [replace(ended, finished_at=datetime.now(UTC))])
        page.locator("#trials tr", has_text="1,250.0").wait_for(timeout=30_000)
        assert "complete" in row.inner_text()
        page.get_by_text("1,250.0").first.wait_for()


def test_empty_and_half_written_studies_are_pages(open_page: Any, live: tuple[str, str]) -> None:
    address, url = live
    with storage.open_store(url) as store:
        (study,) = store.studies()
        like = store.trials(study.id)[17]
        empty = store.open_study(replace(study.key, space_revision="empty"))
        failed = store.open_study(replace(study.key, space_revision="failed"))
        bare = replace(like, number=0, placement=None, predicted_s=None, numbers={}, details={}, lowered_digest="")
        infinite = replace(bare, number=1, state=TrialState.COMPLETE, predicted_s=float("inf"), bound_s=float("nan"))
        store.save_trials(failed.id, [replace(bare, state=TrialState.FAILED, finished_at=None), infinite])
    page = open_page(f"{address}/studies/{empty.id}")
    assert "no trials" in page.locator("#trials").inner_text()
    page.goto(f"{address}/studies/{failed.id}")
    assert "∞" in page.locator("#trials").inner_text()
    for number in (0, 1):
        page.goto(f"{address}/studies/{failed.id}/trials/{number}")
        assert page.locator("h1").inner_text().startswith(f"Trial {number}")
