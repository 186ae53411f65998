from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.tuner.nightly.desk import NIGHT
from tuner.errors import InvalidValue
from tuner.nightly.markdown import markdown
from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, EntryReport, NightReport, Recheck
from tuner.nightly.staleness import Due

CHECK = Recheck(
    plan_id=3,
    toolchain="jax 0.10.2, libtpu 0.0.42.1",
    changes=("libtpu 0.0.42.1 is now 0.0.50.1",),
    before_s=0.5,
    restated=True,
    kept_s=0.56,
    after_s=0.55,
)


def entry(name: str, ending: Ending, **changes: Any) -> EntryReport:
    fields: dict[str, Any] = {
        "name": name,
        "study": "ab" * 32,
        "due": Due.STALE,
        "why": "there is a reason",
        "ending": ending,
        "detail": "every layout was tried",
        "evidence": "predicted",
        "finished": True,
        "ended_at": NIGHT,
    }
    return EntryReport(**fields | changes)


ENTRIES = (
    entry("better", Ending.PROMOTED, plan_before=1, before_s=0.5, plan_after=2, after_s=0.45, proved=True),
    entry("new", Ending.PROMOTED, due=Due.MISSING, plan_after=4, after_s=0.3, compiled=6),
    entry("slower", Ending.PROMOTED, plan_after=5, after_s=0.53, recheck=CHECK),
    entry("made up", Ending.PROMOTED, plan_after=6, after_s=0.49, recheck=CHECK),
    entry("gone", Ending.KEPT, plan_after=7, after_s=0.5, recheck=replace(CHECK, after_s=None, reason="needs 20 GiB")),
    entry("faster", Ending.PROMOTED, plan_after=8, after_s=0.5, recheck=replace(CHECK, after_s=0.5, restated=False)),
    entry("kept", Ending.KEPT, plan_before=9, before_s=0.5, plan_after=9, after_s=0.5, finished=False),
    entry("bro|ken", Ending.FAILED, detail="RuntimeError: <b>*x*</b>\nsecond line"),
    entry("none", Ending.IMPOSSIBLE, detail="the nearest needs 3 GiB more"),
    entry("cut", Ending.INTERRUPTED, detail="it was told to stop"),
    entry("fresh", Ending.FRESH, due=Due.FRESH, why="plan 2 was proved"),
    entry("late", Ending.NO_TIME, detail="the night ended before its turn", ended_at=None),
)
REPORT = NightReport(
    state=NightState.OUT_OF_TIME,
    started_at=NIGHT,
    finished_at=NIGHT,
    host="builder",
    toolchain="jax 0.12.0.1, libtpu 0.0.50.1",
    wall_limit_s=3600.0,
    wall_spent_s=3000.0,
    device_spent_s=12.0,
    entries=ENTRIES,
)


def test_what_follows_from_the_entries() -> None:
    assert [e.name for e in REPORT.improved] == ["better", "made up"]
    assert [e.name for e in REPORT.regressed] == ["gone", "slower", "made up"]
    alarms = REPORT.alarms
    assert [alarm.split(":")[0].split(" failed")[0] for alarm in alarms] == ["slower", "gone", "bro|ken", "none"]
    assert "6.0% slower under the new compiler, 500.0 ms were 530.0 ms at the best" in alarms[0]
    assert replace(REPORT, alarm=0.07).alarms == alarms[1:]
    assert CHECK.loss == pytest.approx(0.1)


def test_steps_of_two_kinds_of_evidence_are_never_compared() -> None:
    measured = entry("m", Ending.PROMOTED, evidence="measured", after_s=0.6, recheck=CHECK)
    assert measured.gain is None
    assert list(measured.alarms(0.02)) == []
    assert replace(measured, evidence="predicted").gain == pytest.approx(-0.2)


def test_a_report_comes_back_from_json() -> None:
    document = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert NightReport.from_json(document) == REPORT
    assert document["alarms"] == list(REPORT.alarms)
    assert document["entries"][0]["gain"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "change",
    [{"schema_version": 2}, {"entries": [{}]}, {"state": "asleep"}, {"started_at": None}, {"problems": None}],
)
def test_a_document_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="night report"):
        NightReport.from_json(REPORT.to_json() | change)


def test_the_markdown_says_everything_once_and_what_needs_a_look_first() -> None:
    text = markdown(REPORT)
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Someone must look",
        "Improved",
        "New",
        "Regressed under the new compiler",
        "As fast or faster under the new compiler",
        "No faster",
        "Failed",
        "Stopped in the middle",
        "To be continued",
        "Skipped",
    ]
    assert "wall time: 50 min of 1 h spent, 10 min left" in text
    assert "time on devices: 12 s spent, no limit" in text
    assert "| better | 500.0 | 450.0 | 10.0% | predicted | there is a reason |" in text
    assert "| slower | 500.0 | 550.0 | +10.0% | 530.0 | libtpu 0.0.42.1 is now 0.0.50.1 |" in text
    assert "| gone | 500.0 | - | does not run | 500.0 |" in text
    assert "500.0 (as stored)" in text
    assert "- fresh: fresh, plan 2 was proved" in text
    assert "- late: the night ended before its turn (it is due: there is a reason)" in text


def test_no_text_of_an_error_becomes_markup() -> None:
    text = markdown(REPORT)
    assert "RuntimeError: \\<b\\>\\*x\\*\\</b\\> second line" in text
    assert "bro\\|ken" in text
    assert "<b>" not in text


def test_an_empty_night_has_a_report() -> None:
    text = markdown(NightReport(state=NightState.COMPLETE, started_at=NIGHT))
    assert text.startswith("# Night of 2026-11-30 22:00 UTC\n")
    assert "## " not in text
