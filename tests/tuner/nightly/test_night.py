from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.tuner.nightly.desk import NEW, NIGHT, Room, entry, names
from tests.tuner.search.test_funnel import NO
from tuner.errors import StoreError
from tuner.layouts.layout import Candidate
from tuner.nightly.events import Begun, Ended, Surveyed
from tuner.nightly.matrix import Matrix
from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, NightReport
from tuner.nightly.staleness import Due
from tuner.plans.plan import PlanState
from tuner.rejections import Rejection
from tuner.stores import Study, StudyKey, TrialState


def test_the_first_night_searches_everything_and_the_second_skips_it() -> None:
    room = Room()
    first = room.night(entry("a"), entry("b"))
    assert first.state is NightState.COMPLETE
    assert [e.ending for e in first.entries] == [Ending.PROMOTED] * 2
    assert [e.due for e in first.entries] == [Due.MISSING] * 2
    assert all(e.finished and e.after_s and e.compiled for e in first.entries)
    assert first.alarms == ()
    second = room.night(entry("a"), entry("b"))
    assert names(room.done) == ["search a", "search b"]
    assert [e.ending for e in second.entries] == [Ending.FRESH] * 2
    assert [e.plan_after for e in second.entries] == [e.plan_after for e in first.entries]
    assert "plan 1" in second.entries[0].why


def test_priority_orders_searches_and_the_file_decides_among_equals() -> None:
    room = Room()
    room.night(entry("a"), entry("b", priority=5), entry("c"), entry("d", priority=5))
    assert names(room.done) == ["search b", "search d", "search a", "search c"]


def test_under_a_new_compiler_plans_are_rechecked_before_anything_is_searched() -> None:
    room = Room()
    room.night(entry("a"), entry("b"))
    room.toolchain, room.compiler.slower = NEW, 1.1
    room.done.clear()
    night = room.night(entry("c", priority=9), entry("a"), entry("b", priority=1))
    assert names(room.done) == ["recheck b", "recheck a", "search c", "search b", "search a"]
    a = next(e for e in night.entries if e.name.startswith("a@"))
    assert a.due is Due.STALE
    assert a.why == "plan 1 is of another toolchain: libtpu 0.0.50.1 is now 0.0.51"
    check = a.recheck
    assert check is not None
    assert check.restated
    assert check.before_s == room.store.plan(1).plan.step_s
    assert check.kept_s == pytest.approx(check.after_s)
    assert check.loss is not None
    assert 0.05 < check.loss < 0.11
    assert a.gain == pytest.approx(-check.loss)
    assert [e.name for e in night.regressed] == [a.name, next(e.name for e in night.entries if e.name.startswith("b@"))]
    assert any("a@1x1x1 on v5e-2x2: " in alarm and "slower under the new compiler" in alarm for alarm in night.alarms)


def test_a_recheck_puts_the_old_decision_into_service_and_the_search_does_not_compile_it_again() -> None:
    room = Room()
    room.night(entry("a"))
    winner = room.store.plan(1).plan
    room.toolchain = NEW
    room.before = lambda what: (_ for _ in ()).throw(RuntimeError("no search")) if what.startswith("search") else None
    night = room.night(entry("a"))
    rechecked = room.store.plan(2)
    assert rechecked.state is PlanState.ACTIVE
    assert rechecked.plan.toolchain == NEW
    assert rechecked.plan.candidate == winner.candidate
    assert room.store.plan(1).state is PlanState.ACTIVE  # for who still runs the old toolchain
    assert night.entries[0].ending is Ending.FAILED
    room.before = lambda what: None
    asked = room.compiler.asked.count(winner.candidate.digest)
    again = room.night(entry("a"))
    assert names(room.done)[-2:] == ["search a", "search a"]  # no second re-check
    assert again.entries[0].due is Due.UNFINISHED
    assert room.compiler.asked.count(winner.candidate.digest) == asked == 2
    assert again.entries[0].finished


def test_a_regression_that_a_search_makes_up_for_alarms_nobody() -> None:
    room = Room()
    room.night(entry("a"))
    winner = room.store.plan(1).plan.candidate
    room.toolchain = NEW
    compiler = room.compiler

    def slower_for_the_winner(what: str) -> None:
        compiler.slower = 1.1 if what.startswith("recheck") else 1.0

    room.before = slower_for_the_winner
    night = room.night(entry("a"))
    (only,) = night.entries
    assert only.recheck is not None
    assert (only.recheck.loss or 0) > 0.02
    assert only.gain is not None
    assert only.gain > -0.02
    assert night.regressed == (only,)
    assert night.alarms == ()
    assert room.store.plan(only.plan_after or 0).plan.candidate != winner


def test_a_plan_that_no_longer_compiles_is_an_alarm_with_the_reason_and_the_search_goes_on() -> None:
    room = Room()
    room.night(entry("a"))
    winner = room.store.plan(1).plan.candidate
    room.toolchain = NEW
    room.compiler.fail = lambda candidate: NO if candidate == winner else None
    night = room.night(entry("a"))
    (only,) = night.entries
    assert only.recheck is not None
    assert (only.recheck.after_s, only.recheck.reason) == (None, NO.detail)
    assert only.ending is Ending.PROMOTED
    assert "plan 1 does not run under the new compiler: for the test" in night.alarms[0]
    assert night.regressed == (only,)


def test_an_error_in_a_recheck_is_told_and_the_search_goes_on() -> None:
    def broken(what: str) -> None:
        if what.startswith("recheck"):
            raise RuntimeError("disk\nfull")

    room = Room()
    room.night(entry("a"))
    room.toolchain, room.before = NEW, broken
    night = room.night(entry("a"))
    assert night.entries[0].ending is Ending.PROMOTED
    assert any("RuntimeError: disk full" in alarm for alarm in night.alarms)
    assert [type(e.error) for e in room.events if isinstance(e, Ended) and e.recheck] == [RuntimeError]


@pytest.mark.parametrize("where", ["key", "search"])
def test_one_entry_that_fails_does_not_end_the_night(where: str) -> None:
    def broken(what: str) -> None:
        if what.startswith(f"{where} a"):
            raise ZeroDivisionError("division by zero")

    room = Room(before=broken)
    night = room.night(entry("a"), entry("b"))
    assert night.state is NightState.COMPLETE
    assert {e.name[0]: e.ending for e in night.entries} == {"a": Ending.FAILED, "b": Ending.PROMOTED}
    assert night.alarms == ("a@1x1x1 on v5e-2x2 failed: ZeroDivisionError: division by zero",)
    room.before = lambda what: None
    room.done.clear()
    again = room.night(entry("b"), entry("a"))
    assert names(room.done) == ["search a"]
    assert again.alarms == ()


def test_where_nothing_runs_someone_must_look_once() -> None:
    room = Room()
    room.compiler.fail = lambda candidate: NO
    night = room.night(entry("a"))
    assert night.entries[0].ending is Ending.IMPOSSIBLE
    assert "no layout runs" in night.alarms[0]
    assert NO.detail in night.alarms[0]
    again = room.night(entry("a"))
    assert again.entries[0].ending is Ending.FRESH
    assert "no layout runs" in again.entries[0].why
    assert again.alarms == ()


def test_the_nights_budget_leaves_the_rest_with_the_reason_and_the_next_night_takes_it_up() -> None:
    room = Room()
    night = room.night(entry("a"), entry("b"), entry("c"), budget_s=45.0)
    assert night.state is NightState.OUT_OF_TIME
    assert night.wall_spent_s >= 45
    left = night.ended(Ending.NO_TIME)
    assert [e.name[0] for e in left] == ["b", "c"] or [e.name[0] for e in left] == ["c"]
    assert all(e.detail == "the night ended before its turn" for e in left)
    assert night.alarms == ()
    room.done.clear()
    after = room.night(entry("a"), entry("b"), entry("c"))
    assert after.state is NightState.COMPLETE
    unfinished = [e.name[0] for e in night.entries if e.ending is not Ending.NO_TIME and not e.finished]
    assert names(room.done)[: len(unfinished)] == [f"search {name}" for name in unfinished]
    assert all(e.finished for e in after.entries)


def test_an_entrys_budget_is_of_the_night_and_its_study_goes_on_the_next() -> None:
    room = Room()
    small = entry("a", slice_name="v5e-2x4", budget_s=25.0)
    first = room.night(small, budget_s=1000.0)
    assert first.state is NightState.COMPLETE  # the entry's budget ended it, not the night's
    (cut,) = first.entries
    assert not cut.finished
    assert "budget" in cut.detail
    compiled, nights = cut.compiled, 1
    assert 0 < compiled <= 4
    while not cut.finished and nights < 10:
        (cut,) = room.night(small).entries
        assert cut.due is Due.UNFINISHED
        compiled, nights = compiled + cut.compiled, nights + 1
    assert cut.finished
    assert nights > 2
    assert compiled == len(room.compiler.asked) == len(set(room.compiler.asked))


def test_a_search_that_may_compile_no_more_is_finished() -> None:
    room = Room()
    few = entry("a", slice_name="v5e-2x4", max_trials=3)
    (only,) = room.night(few).entries
    assert only.compiled == 3
    assert only.finished
    assert room.night(few).entries[0].ending is Ending.FRESH


def test_time_on_devices_is_a_budget_of_its_own() -> None:
    room = Room(device_s=40.0)
    night = room.night(
        entry("a", device_budget_s=50.0), entry("b"), entry("c", device_budget_s=5.0), device_budget_s=100.0
    )
    assert {name[0]: allowed for name, allowed in room.allowed.items()} == {"a": 50.0, "b": 60.0, "c": 5.0}
    assert night.device_spent_s == 120.0
    assert [e.device_s for e in night.entries] == [40.0] * 3
    without = Room()
    without.night(entry("a"))
    assert list(without.allowed.values()) == [None]


def test_where_devices_are_a_predicted_plan_is_measured_once() -> None:
    room = Room()
    room.night(entry("a"))
    room.devices, room.device_s = True, 40.0
    assert room.night(entry("a", device_budget_s=0.0)).entries[0].ending is Ending.FRESH
    measured = room.night(entry("a"))
    assert measured.entries[0].due is Due.UNMEASURED
    assert measured.entries[0].device_s == 40.0
    # The plan in service stayed; that is what the devices said, and no reason to ask them every night.
    assert room.night(entry("a")).entries[0].ending is Ending.FRESH


def test_another_space_or_model_is_searched_again_and_old_searches_too() -> None:
    room = Room()
    room.night(entry("a"))
    room.code = "2"
    outdated = room.night(entry("a"))
    assert outdated.entries[0].due is Due.OUTDATED
    assert outdated.entries[0].ending is Ending.KEPT  # the edit changed nothing
    room.clock.s += timedelta(days=8).total_seconds()
    week = timedelta(days=7).total_seconds()
    assert room.night(entry("a")).entries[0].ending is Ending.FRESH
    aged = room.night(entry("a"), refresh_s=week)
    assert aged.entries[0].due is Due.AGED
    assert room.night(entry("a"), refresh_s=week).entries[0].ending is Ending.FRESH


@pytest.mark.parametrize("stage", ["recheck", "search"])
def test_an_interrupted_night_keeps_what_it_found_and_the_next_goes_on(stage: str) -> None:
    room = Room()
    if stage == "recheck":
        room.night(entry("b"))
        room.toolchain = NEW
    calls = iter(range(10))

    def interrupt(candidate: Candidate) -> Rejection | None:
        if next(calls) == (0 if stage == "recheck" else 2):
            raise KeyboardInterrupt
        return None

    room.compiler.fail = interrupt
    night = room.night(entry("b"), entry("c"))
    assert night.state is NightState.INTERRUPTED
    assert night.finished_at is not None
    assert [e.ending for e in night.entries] == [Ending.INTERRUPTED, Ending.NO_TIME]
    assert room.store.nights()[0].state is NightState.INTERRUPTED
    states = {trial.state for study in room.store.studies() for trial in room.store.trials(study.id)}
    assert TrialState.RUNNING not in states
    room.compiler.fail = lambda candidate: None
    found = {trial.candidate.digest for trial in room.store.trials(1) if trial.predicted_s is not None}
    room.compiler.asked.clear()
    after = room.night(entry("b"), entry("c"))
    assert after.entries[0].due is Due.UNFINISHED
    assert all(e.finished for e in after.entries)
    if stage == "search":
        assert found
        assert sum(digest in found for digest in room.compiler.asked) <= len(found)  # for c, and never again for b
        assert names(room.done)[-2:] == ["search b", "search c"]
    else:
        assert names(room.done)[-4:] == ["recheck b", "recheck b", "search b", "search c"]


def test_a_night_that_is_displaced_stops_at_the_next_event() -> None:
    room = Room()
    lost = iter([False] * 6)
    night = room.prepared(Matrix(entries=(entry("a"),)), displaced=lambda: next(lost, True)).run()
    assert night.state is NightState.DISPLACED
    assert night.entries[0].ending is Ending.INTERRUPTED


def test_what_a_killed_night_wrote_is_there_and_the_next_night_says_that_it_died() -> None:
    class Killed(BaseException):
        pass

    def kill(what: str) -> None:
        if what.startswith("search b"):
            snapshots.append(json.loads(json.dumps(room.store.nights()[0].document)))
            raise Killed

    snapshots: list[dict[str, object]] = []
    room = Room(before=kill)
    with pytest.raises(Killed):
        room.night(entry("a"), entry("b"))
    written = NightReport.from_json(snapshots[0])
    assert written.state is NightState.RUNNING
    assert [e.ending for e in written.entries] == [Ending.PROMOTED, Ending.INTERRUPTED]
    # As if even the last write had not happened.
    stored = room.store.nights()[0]
    room.store.save_night(
        stored.id,
        state=NightState.RUNNING,
        must_look=False,
        started_at=NIGHT,
        finished_at=None,
        document=snapshots[0],
    )
    room.before = lambda what: None
    after = room.night(entry("a"), entry("b"))
    assert [e.due for e in after.entries] == [Due.FRESH, Due.UNFINISHED]
    died = room.store.night(stored.id)
    assert died.state is NightState.DIED
    assert NightReport.from_json(died.document).state is NightState.DIED


def test_a_database_that_cannot_take_the_report_is_a_problem_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()

    def away(*arguments: object, **named: object) -> int:
        raise StoreError("the disk is full")

    monkeypatch.setattr(room.store, "save_night", away)
    night = room.night(entry("a"))
    assert night.entries[0].ending is Ending.PROMOTED
    assert night.alarms == ("the report could not be stored: the disk is full",)


def test_nights_of_a_newer_version_are_passed_over() -> None:
    room = Room()
    room.store.save_night(
        None,
        state=NightState.COMPLETE,
        must_look=False,
        started_at=NIGHT,
        finished_at=NIGHT,
        document={"schema_version": 99},
    )
    assert room.night(entry("a")).state is NightState.COMPLETE


def test_a_terminal_that_went_away_ends_no_night() -> None:
    def gone(event: object) -> None:
        raise BrokenPipeError

    room = Room()
    night = room.prepared(Matrix(entries=(entry("a"),)), listener=gone).run()
    assert night.entries[0].ending is Ending.PROMOTED
    assert night.alarms == ()


def test_a_database_that_is_away_for_a_moment_fails_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    ready = room.store.open_study

    def away(key: StudyKey) -> Study:
        monkeypatch.setattr(room.store, "open_study", ready)
        raise StoreError("connection lost")

    monkeypatch.setattr(room.store, "open_study", away)
    night = room.night(entry("a"), entry("b"))
    assert [e.ending for e in night.entries] == [Ending.FAILED, Ending.PROMOTED]


def test_it_tells_what_it_does() -> None:
    room = Room()
    room.night(entry("a"))
    survey = next(event for event in room.events if isinstance(event, Surveyed))
    assert (survey.entries, survey.due, survey.to_recheck) == (1, 1, 0)
    begun = next(event for event in room.events if isinstance(event, Begun))
    assert (begun.number, begun.total, begun.recheck, begun.why) == (1, 1, False, "there is no plan")
    ended = [event for event in room.events if isinstance(event, Ended)]
    assert [event.report.ending for event in ended] == [Ending.PROMOTED]


def test_the_plan_in_service_is_replaced_only_by_the_margin() -> None:
    room = Room()
    room.night(entry("a"))
    room.code, room.compiler.slower = "2", 0.995
    room.compiler.lowered = lambda candidate: f"edited {candidate.digest}"
    kept = room.night(entry("a"), margin=0.02)
    # The same decision takes newer figures; another would need the margin.
    assert kept.entries[0].ending is Ending.PROMOTED
    assert kept.entries[0].gain == pytest.approx(0.005, abs=0.002)
    assert room.store.plan(2).note == "the same layout and placement with newer figures"
