"""Names and values that nobody vouches for change nothing but their own cell."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from adapters.web.pages import words as formats
from tests.adapters.web.pages.conftest import Fetch, read
from tests.storage.samples import plan, study_key, trial, workload
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.plans.plan import Baseline
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.stores import Store, TrialState

HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>&lt;{{7*7}}{% raw %}",
    "long": "x" * 10_000,
    "broken-lines": "a\r\nSet-Cookie: b=c\n\n<h1>new</h1>",
    "right-to-left": "\u202egnitrever\u2066\u05d0\u05d1\u05d2 \u0627\u0644",
    "controls": "\x01\x07\x1b[31mred\x7f\x9b0m\u200b\ufeff\u2028",
    "combining": "z" + "\u0301" * 300,
    "attribute": "' autofocus onfocus='alert(1)",
    "javascript": "javascript:alert(1)",
}


def fill(writer: Store, value: str) -> tuple[int, int]:
    """Puts a value wherever a text may stand; returns ids of the study and the plan."""
    key = study_key(workload=workload(model=value.replace("@", " ").replace("+", " "), shape=value, revision=value))
    study = writer.open_study(key)
    layout = Layout.of({"cfg": 2, value: 4}, {value: value})
    candidate = Candidate(layout=layout, compiler_options=((value, value),))
    placement = Placement(devices=tuple(range(8)), description=value)
    rejection = Rejection(stage=Stage.SCREEN, reason=RejectReason.HBM, detail=value, numbers={value: 1.0})
    details = {"step_s": 1.0, "busiest_link": value, "collectives": [{"name": value, "kind": value}], value: value}
    writer.save_trials(
        study.id,
        [
            trial(0, candidate=candidate, placement=placement, host=value, details=details, numbers={value: 2.0}),
            trial(1, candidate=candidate, state=TrialState.REJECTED, rejection=rejection, predicted_s=None, host=value),
            trial(2, candidate=candidate, state=TrialState.RUNNING, predicted_s=None, host=value, finished_at=None),
            trial(3, candidate=candidate, baseline=value[:16]),
        ],
    )
    writer.count_refusals(study.id, {value[:64]: 3})
    writer.claim(value, owner=f"{value}/1/2", ttl_s=60)
    stored = writer.promote(
        plan(
            workload=key.workload,
            candidate=candidate,
            placement=placement,
            study=key.name,
            trial=0,
            details=details,
            baselines=(Baseline(name=value, layout=value, step_s=2.0, reason=value),),
        ),
        note=value,
    )
    return study.id, stored.id


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_changes_nothing_but_its_own_cell(
    client: TestClient, fetch: Fetch, writer: Store, name: str
) -> None:
    tame, tame_plan = fill(writer, "tame")
    study, plan_id = fill(writer, HOSTILE[name])
    for page in (
        "/studies/{study}",
        "/studies/{study}/trials/0",
        "/studies/{study}/trials/1",
        "/studies/{study}/trials/2",
        "/plans/{plan}",
        "/compare?a=plan-{plan}&b=trial-{study}-1",
        "/compare?a=trial-{study}-0&b=trial-{study}-1",
    ):
        hostile = fetch(page.format(study=study, plan=plan_id))
        calm = fetch(page.format(study=tame, plan=tame_plan))
        # The same elements in the same order: nothing in the value was taken for markup.
        assert [tag for tag, _ in hostile.tags if _structural(tag)] == [tag for tag, _ in calm.tags if _structural(tag)]
        seen = "".join(hostile.text)
        assert not any(sign in seen for sign in "\x01\x07\x1b\x7f\x9b\u202e\u2066")
    for page in ("/", "/?state=any", "/studies"):
        fetch(page)
    for page in (
        f"/studies/{study}.json",
        f"/studies/{study}/trials/0.json",
        f"/plans/{plan_id}.json",
        "/overview.json",
    ):
        answer = client.get(page)
        assert answer.status_code == 200
        json.loads(answer.text, parse_constant=pytest.fail)
        assert answer.headers["x-content-type-options"] == "nosniff"
    for page in (f"/studies/{study}/trials.csv", "/plans.csv"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert "\n" not in answer.headers["content-disposition"]


def _structural(tag: str) -> bool:
    # A drawn text may be cut into several pieces, and a list is shorter where things are alike.
    return tag in (
        "script",
        "style",
        "iframe",
        "object",
        "form",
        "input",
        "select",
        "button",
        "h1",
        "h2",
        "table",
        "img",
    )


def test_the_whole_of_a_long_text_can_be_reached(client: TestClient, fetch: Fetch, writer: Store) -> None:
    detail = "needs " + "y" * 9_000 + " end"
    rejection = Rejection(stage=Stage.SCREEN, reason=RejectReason.LOWERING_ERROR, detail=detail)
    writer.save_trials(1, [trial(0, state=TrialState.REJECTED, rejection=rejection)])
    listed = client.get("/studies/1?reason=lowering-error").text
    assert detail not in listed
    assert "…" in listed
    assert detail in "".join(fetch("/studies/1/trials/0").text)


@pytest.mark.parametrize("query", ["text", "state", "sort", "a", "after"])
def test_a_hostile_query_is_refused_or_shown_as_text(client: TestClient, query: str) -> None:
    value = '"><script>alert(1)</script>\x00\u202e'
    for page in ("/", "/studies", "/studies/1", "/compare"):
        answer = client.get(page, params={query: value}, headers={"accept": "text/html"})
        assert answer.status_code in (200, 400)
        assert "<script>alert" not in answer.text
        if answer.status_code == 200:
            read(answer.text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\tb\nc", "a␉b␊c"),
        ("\x7f", "␡"),
        ("\u202eabc", "⟨U+202E RIGHT-TO-LEFT OVERRIDE⟩abc"),
        ("\u05d0", "\u05d0"),
        ("\x9b", "⟨U+009B⟩"),
    ],
)
def test_what_is_not_seen_is_written_out(text: str, expected: str) -> None:
    assert formats.visible(text) == expected


def test_line_ends_may_stay() -> None:
    assert formats.visible("a\nb\x01", lines=True) == "a\nb␁"
