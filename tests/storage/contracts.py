"""The contract of `tuner.stores` as tests, which a store inherits and gives itself to as the fixture `store`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.storage.samples import (
    MODEL,
    NEW,
    NOON_ELSEWHERE,
    OLD,
    SHAPE,
    TOO_BIG,
    candidate,
    compiled,
    content_key,
    grid,
    plan,
    screened,
    study_key,
    trial,
    workload,
)
from tuner.errors import InvalidValue, PlanNotFound, UnknownName
from tuner.plans.lookup import Query, Rung
from tuner.plans.plan import Constraints, Evidence, PlanState
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.names import parse_slice
from tuner.stores import Store, TrialState


class TrialStoreContract:
    def test_a_study_opens_as_the_same_study_again(self, store: Store) -> None:
        key = study_key()
        study = store.open_study(key)
        assert study.key == key
        assert store.open_study(key) == study
        assert study.created_at.tzinfo is UTC

    def test_a_study_of_a_twisted_torus_is_not_that_of_the_plain_one(self, store: Store) -> None:
        plain, twisted = (study_key(slice=parse_slice(name)) for name in ("v5p-4x4x8", "v5p-4x4x8_twisted"))
        assert store.open_study(plain).id != store.open_study(twisted).id
        assert [study.key for study in store.studies()] == [twisted, plain]

    @pytest.mark.parametrize(
        "other",
        [
            study_key(workload=workload(shape="480x272x81")),
            study_key(slice=grid(2, 4, wrap=(False, True))),
            study_key(toolchain=OLD),
            study_key(constraints=Constraints(reserve_hbm_bytes=1)),
            study_key(evidence=Evidence.MEASURED),
            study_key(space_revision="s2"),
        ],
    )
    def test_every_part_of_the_key_makes_another_study(self, store: Store, other) -> None:
        assert store.open_study(other).id != store.open_study(study_key()).id

    def test_studies_come_newest_first_with_counts(self, store: Store) -> None:
        first, second = store.open_study(study_key()), store.open_study(study_key(space_revision="s2"))
        store.save_trials(first.id, [trial(0), trial(1), trial(2, state=TrialState.REJECTED, rejection=TOO_BIG)])
        assert [study.id for study in store.studies()] == [second.id, first.id]
        assert store.studies()[1].counts == {"complete": 2, "rejected": 1}
        assert store.studies()[0].counts == {}
        assert store.open_study(study_key()).counts == {"complete": 2, "rejected": 1}

    def test_a_trial_comes_back_whole(self, store: Store) -> None:
        study = store.open_study(study_key())
        kept = [trial(0), trial(1, state=TrialState.REJECTED, stage=Stage.COMPILE, rejection=TOO_BIG, placement=None)]
        store.save_trials(study.id, kept)
        assert list(store.trials(study.id)) == kept

    def test_a_trial_that_has_reached_nothing_comes_back_with_nothing(self, store: Store) -> None:
        study = store.open_study(study_key())
        bare = replace(
            trial(),
            baseline="",
            bound_s=None,
            estimate_s=None,
            predicted_s=None,
            numbers={},
            placement=None,
            details={},
        )
        bare = replace(bare, lowered_digest="", host="", started_at=None, finished_at=None, state=TrialState.RUNNING)
        store.save_trials(study.id, [bare])
        assert list(store.trials(study.id)) == [bare]

    def test_saving_a_number_again_replaces_the_trial(self, store: Store) -> None:
        study = store.open_study(study_key())
        rejected = trial(0, rejection=TOO_BIG, state=TrialState.REJECTED)
        store.save_trials(study.id, [rejected, trial(1)])
        store.save_trials(study.id, [trial(0, measured_s=0.31)])
        assert list(store.trials(study.id)) == [trial(0, measured_s=0.31), trial(1)]
        assert store.studies()[0].counts == {"complete": 2}

    def test_the_last_of_two_trials_of_one_number_in_a_batch_stays(self, store: Store) -> None:
        study = store.open_study(study_key())
        store.save_trials(study.id, [trial(4), trial(4, host="worker-2")])
        assert list(store.trials(study.id)) == [trial(4, host="worker-2")]

    def test_saving_no_trials_is_nothing(self, store: Store) -> None:
        study = store.open_study(study_key())
        store.save_trials(study.id, [])
        assert list(store.trials(study.id)) == []

    def test_trials_are_paged_and_filtered(self, store: Store) -> None:
        study = store.open_study(study_key())
        states = [TrialState.COMPLETE, TrialState.FAILED]
        store.save_trials(study.id, [trial(number, state=states[number % 2]) for number in reversed(range(10))])
        numbers = lambda **how: [found.number for found in store.trials(study.id, **how)]  # noqa: E731
        assert numbers() == list(range(10))
        assert numbers(after=3, limit=2) == [4, 5]
        assert numbers(state=TrialState.FAILED, after=3) == [5, 7, 9]
        assert numbers(limit=0) == []

    def test_trials_of_studies_do_not_mix(self, store: Store) -> None:
        first, second = store.open_study(study_key()), store.open_study(study_key(space_revision="s2"))
        store.save_trials(first.id, [trial(0)])
        assert list(store.trials(second.id)) == []

    def test_metrics_without_a_finite_value_are_kept(self, store: Store) -> None:
        study = store.open_study(study_key())
        odd = trial(
            0,
            bound_s=-math.inf,
            estimate_s=math.inf,
            predicted_s=math.nan,
            numbers={"up": math.inf, "down": -math.inf, "none": math.nan, "some": 1.5},
            rejection=Rejection(
                stage=Stage.PLACE, reason=RejectReason.BOUND, detail="", numbers={"bound_s": math.inf, "x": math.nan}
            ),
            details={"list": [math.nan, math.inf, -math.inf, 0.5]},
        )
        store.save_trials(study.id, [odd])
        (found,) = store.trials(study.id)
        assert (found.bound_s, found.estimate_s) == (-math.inf, math.inf)
        assert found.predicted_s is not None
        assert math.isnan(found.predicted_s)
        assert found.measured_s is None
        assert math.isnan(found.numbers["none"])
        assert {name: found.numbers[name] for name in ("up", "down", "some")} == {
            "up": math.inf,
            "down": -math.inf,
            "some": 1.5,
        }
        assert found.rejection is not None
        assert found.rejection.numbers["bound_s"] == math.inf
        assert math.isnan(found.rejection.numbers["x"])
        assert found.details == {"list": ["NaN", "Infinity", "-Infinity", 0.5]}

    def test_texts_that_a_database_refuses_lose_only_the_bad_characters(self, store: Store) -> None:
        study = store.open_study(study_key())
        bad = "é\0\udcff'; DROP TABLE mw_trials; --"
        rejection = Rejection(stage=Stage.COMPILE, reason=RejectReason.COMPILER_ERROR, detail=bad)
        store.save_trials(study.id, [trial(0, rejection=rejection, host=bad, details={"text": bad, bad: 1})])
        (found,) = store.trials(study.id)
        good = "é\N{REPLACEMENT CHARACTER}?'; DROP TABLE mw_trials; --"
        assert found.rejection is not None
        assert (found.rejection.detail, found.host) == (good, good)
        assert found.details == {"text": good, good: 1}

    def test_times_come_back_in_utc(self, store: Store) -> None:
        study = store.open_study(study_key())
        store.save_trials(study.id, [trial(0, started_at=NOON_ELSEWHERE)])
        (found,) = store.trials(study.id)
        assert found.started_at == NOON_ELSEWHERE
        assert found.started_at is not None
        assert found.started_at.tzinfo is UTC

    def test_a_naive_time_is_refused_and_nothing_is_saved(self, store: Store) -> None:
        study = store.open_study(study_key())
        with pytest.raises(InvalidValue, match="naive"):
            store.save_trials(study.id, [trial(0), trial(1, started_at=datetime(2026, 1, 1))])
        assert list(store.trials(study.id)) == []

    def test_what_is_returned_is_the_callers(self, store: Store) -> None:
        study = store.open_study(study_key())
        given = trial(0)
        store.save_trials(study.id, [given])
        given.details["timeline"].clear()  # type: ignore[index]
        (found,) = store.trials(study.id)
        assert found == trial(0)
        found.details["timeline"].clear()
        found.numbers.clear()  # type: ignore[attr-defined]
        assert list(store.trials(study.id)) == [trial(0)]

    def test_refusals_are_replaced(self, store: Store) -> None:
        study = store.open_study(study_key())
        assert store.refusals(study.id) == {}
        store.count_refusals(study.id, {"indivisible": 40, "illegal-options": 2})
        store.count_refusals(study.id, {"indivisible": 41})
        assert store.refusals(study.id) == {"indivisible": 41}
        store.count_refusals(study.id, {})
        assert store.refusals(study.id) == {}

    def test_runs_add_their_time(self, store: Store) -> None:
        study = store.open_study(study_key())
        store.close_run(study.id, proved=False, spent_s=1.5)
        store.close_run(study.id, proved=True, spent_s=2.0)
        found = store.open_study(study_key())
        assert (found.proved, found.spent_s) == (True, 3.5)

    def test_a_study_that_is_not_there_is_a_key_error(self, store: Store) -> None:
        for call in (
            lambda: store.trials(99),
            lambda: store.save_trials(99, [trial(0)]),
            lambda: store.count_refusals(99, {"indivisible": 1}),
            lambda: store.refusals(99),
            lambda: store.close_run(99, proved=True, spent_s=1.0),
        ):
            with pytest.raises(KeyError, match="99"):
                call()


class ProgramStoreContract:
    def test_what_a_screen_found_comes_back_whole(self, store: Store) -> None:
        good, bad, unknown = (content_key(name) for name in ("good", "bad", "unknown"))
        store.save_screened({good: screened(), bad: TOO_BIG})
        assert store.screened([good, bad, unknown, good]) == {good.digest: screened(), bad.digest: TOO_BIG}
        assert store.screened([]) == {}

    def test_the_first_screen_of_a_key_stays(self, store: Store) -> None:
        store.save_screened({content_key(): screened(1)})
        store.save_screened({content_key(): TOO_BIG, content_key("c2"): screened(2)})
        assert store.screened([content_key()])[content_key().digest] == screened(1)
        assert store.screened([content_key("c2")])[content_key("c2").digest] == screened(2)

    def test_many_keys_at_once(self, store: Store) -> None:
        keys = [content_key(f"c{number}") for number in range(35_000)]
        store.save_screened({keys[0]: TOO_BIG, keys[-1]: TOO_BIG})
        assert store.screened(keys).keys() == {keys[0].digest, keys[-1].digest}

    def test_what_the_compiler_made_comes_back_whole(self, store: Store) -> None:
        assert store.compiled(content_key()) is None
        store.save_compiled(content_key(), "ab" * 32, replace(compiled(), cached=True))
        assert store.compiled(content_key()) == compiled()

    def test_what_the_compiler_refused_comes_back_whole(self, store: Store) -> None:
        store.save_compiled(content_key(), "ab" * 32, TOO_BIG)
        assert store.compiled(content_key()) == TOO_BIG
        assert store.compiled_program("ab" * 32, content_key("other")) == TOO_BIG

    def test_an_equal_program_answers_for_another_candidate(self, store: Store) -> None:
        store.save_compiled(content_key("c1"), "ab" * 32, compiled())
        assert store.compiled_program("ab" * 32, content_key("c2")) == compiled()
        store.save_compiled(content_key("c2"), "ab" * 32, compiled(99))
        assert store.compiled(content_key("c2")) == compiled()

    @pytest.mark.parametrize(
        "other",
        [
            content_key(slice_name="v5e-16x8"),
            content_key(wrap=(True, False)),
            content_key(toolchain_digest="t2"),
        ],
    )
    def test_an_equal_program_elsewhere_is_another_program(self, store: Store, other) -> None:
        store.save_compiled(content_key(), "ab" * 32, compiled())
        assert store.compiled_program("ab" * 32, other) is None
        assert store.compiled(other) is None

    def test_the_first_compile_of_a_key_stays(self, store: Store) -> None:
        store.save_compiled(content_key(), "ab" * 32, compiled(1))
        store.save_compiled(content_key(), "ef" * 32, compiled(2, "ef" * 32))
        assert store.compiled(content_key()) == compiled(1)

    def test_rejections_before_the_lowered_program_was_known_are_not_shared(self, store: Store) -> None:
        store.save_compiled(content_key("c1"), "", TOO_BIG)
        other = replace(TOO_BIG, detail="another")
        store.save_compiled(content_key("c2"), "", other)
        assert store.compiled(content_key("c1")) == TOO_BIG
        assert store.compiled(content_key("c2")) == other
        assert store.compiled_program("", content_key("c3")) is None


class PlanStoreContract:
    def test_a_plan_comes_back_whole(self, store: Store) -> None:
        stored = store.promote(plan(), note="first night")
        assert stored.plan == plan()
        assert (stored.version, stored.state, stored.note) == (1, PlanState.ACTIVE, "first night")
        assert stored.stored_at.tzinfo is UTC
        assert store.plan(stored.id) == stored
        assert list(store.plans()) == [stored]

    def test_the_newest_version_is_active_and_the_older_superseded(self, store: Store) -> None:
        first, second = store.promote(plan(2.0)), store.promote(plan(1.0))
        assert second.version == 2
        assert store.active(plan()) == second
        assert store.active(study_key()) == second
        assert store.plan(first.id) == replace(first, state=PlanState.SUPERSEDED)
        assert [stored.id for stored in store.plans()] == [second.id]
        assert [stored.id for stored in store.plans(active_only=False)] == [second.id, first.id]

    @pytest.mark.parametrize(
        "changes",
        [
            {"workload": workload(shape="480x272x81")},
            {"workload": workload(variant="videos=2")},
            {"workload": workload(revision="r2")},
            {"slice": grid(4, 2)},
            {"slice": grid(2, 4, wrap=(False, True))},
            {"toolchain": OLD},
            {"constraints": Constraints(reserve_hbm_bytes=1 << 31)},
        ],
    )
    def test_every_part_of_the_key_has_its_own_active_plan(self, store: Store, changes) -> None:
        one, other = store.promote(plan()), store.promote(plan(**changes))
        assert other.version == 1
        assert store.active(one.plan) == one
        assert store.active(other.plan) == other

    def test_a_retired_plan_serves_no_more(self, store: Store) -> None:
        stored = store.promote(plan(), note="good")
        retired = store.retire(stored.id)
        assert (retired.state, retired.note) == (PlanState.RETIRED, "good")
        assert store.retire(stored.id, note="gave NaN").note == "gave NaN"
        assert store.active(plan()) is None
        assert store.lookup(query()).rung is Rung.NONE
        assert store.promote(plan()).version == 2

    def test_a_version_is_passed_on_as_text(self, store: Store) -> None:
        stored = store.promote(plan(), note="good")
        document = store.document(stored.id)
        assert document.read() == stored
        assert json.loads(document.text)["step_s"] == stored.plan.step_s
        with pytest.raises(PlanNotFound, match="no plan 7"):
            store.document(7)

    def test_plans_of_a_model(self, store: Store) -> None:
        store.promote(plan())
        other = store.promote(plan(workload=workload(model="other")))
        assert list(store.plans(model="other")) == [other]
        assert list(store.plans(limit=1)) == [other]

    def test_a_plan_that_is_not_there(self, store: Store) -> None:
        assert store.active(plan()) is None
        for call in (lambda: store.plan(99), lambda: store.retire(99)):
            with pytest.raises(PlanNotFound, match="99"):
                call()

    def test_a_plan_that_is_returned_is_the_callers(self, store: Store) -> None:
        stored = store.promote(plan())
        stored.plan.details.clear()  # type: ignore[attr-defined]
        store.plan(stored.id).plan.details.clear()  # type: ignore[attr-defined]
        assert store.plan(stored.id).plan == plan()


def query(**changes) -> Query:
    return Query(**{"model": MODEL, "shape": SHAPE, "slice_name": "v5e-2x4", "toolchain": NEW} | changes)


class LookupContract:
    def test_exact(self, store: Store) -> None:
        store.promote(plan(toolchain=OLD))
        stored = store.promote(plan())
        store.promote(plan(workload=workload(shape="1280x720x81")))
        answer = store.lookup(query())
        assert (answer.rung, answer.plan, answer.reasons) == (Rung.EXACT, stored, ())

    def test_the_same_toolchain_is_better_than_a_newer_plan(self, store: Store) -> None:
        stored = store.promote(plan())
        store.promote(plan(toolchain=OLD))
        assert store.lookup(query()).plan == stored

    def test_without_a_toolchain_the_answer_says_so(self, store: Store) -> None:
        stored = store.promote(plan())
        answer = store.lookup(query(toolchain=None))
        assert (answer.rung, answer.plan) == (Rung.UNCHECKED, stored)
        assert "not checked" in answer.reasons[0]

    def test_another_toolchain_is_stale_and_says_what_changed(self, store: Store) -> None:
        stored = store.promote(plan(toolchain=OLD))
        answer = store.lookup(query())
        assert (answer.rung, answer.plan, answer.stale) == (Rung.STALE_TOOLCHAIN, stored, True)
        assert "libtpu 0.0.42.1 is now 0.0.50.1" in answer.reasons

    @pytest.mark.parametrize("field", ["jax", "jaxlib", "libtpu", "flags"])
    def test_every_part_of_the_toolchain_counts(self, store: Store, field: str) -> None:
        store.promote(plan())
        other = replace(NEW, **{field: (("LIBTPU_INIT_ARGS", "--x"),) if field == "flags" else "9"})
        assert store.lookup(query(toolchain=other)).rung is Rung.STALE_TOOLCHAIN

    def test_a_near_shape_is_stale(self, store: Store) -> None:
        store.promote(plan(workload=workload(shape="256x256x17")))
        near = store.promote(plan(workload=workload(shape="832x480x49")))
        store.promote(plan(workload=workload(shape="1280x720x161")))
        answer = store.lookup(query())
        assert (answer.rung, answer.plan) == (Rung.NEAR_SHAPE, near)

    def test_of_near_plans_the_one_of_this_toolchain_comes_first(self, store: Store) -> None:
        near = store.promote(plan(workload=workload(shape="832x480x49")))
        store.promote(plan(workload=workload(shape="832x480x49"), toolchain=OLD))
        assert store.lookup(query()).plan == near

    def test_a_plan_is_located_before_it_is_read(self, store: Store) -> None:
        stored = store.promote(plan())
        located = store.locate(query())
        assert (located.rung, located.plan_id) == (Rung.EXACT, stored.id)
        assert located.answer(store.plan(stored.id)) == store.lookup(query())
        assert store.locate(query(slice_name="v5e-4x4")).plan_id is None

    def test_names_as_people_type_them(self, store: Store) -> None:
        stored = store.promote(plan())
        answer = store.lookup(MODEL, SHAPE, "v5litepod-8")
        assert (answer.rung, answer.plan) == (Rung.UNCHECKED, stored)
        assert "was not checked" in answer.reasons[0]
        assert store.lookup(MODEL, SHAPE, "v5e-2x4", NEW).rung is Rung.EXACT
        assert store.lookup(MODEL, SHAPE, "v5e-2x4", NEW, "r9").rung is Rung.NONE
        with pytest.raises(UnknownName, match="v5e-3x3"):
            store.lookup(MODEL, SHAPE, "v5e-3x3")

    def test_a_slice_of_as_many_chips_is_another_slice(self, store: Store) -> None:
        store.promote(plan(slice=grid(4, 4)))
        wide = store.promote(plan(slice=grid(2, 8)))
        assert store.lookup(query(slice_name="v5e-2x8")).plan == wide
        assert store.lookup(query(slice_name="v5e-8x2")).rung is Rung.NONE
        assert store.lookup(query(slice_name="v6e-4x4")).rung is Rung.NONE

    def test_revisions(self, store: Store) -> None:
        first = store.promote(plan())
        second = store.promote(plan(workload=workload(revision="r2")))
        assert store.lookup(query()).plan == second
        assert store.lookup(query(revision="r1")).plan == first
        answer = store.lookup(query(revision="r3"))
        assert answer.plan is None
        assert "'r1', 'r2'" in answer.reasons[0]

    def test_variants_never_answer_for_each_other(self, store: Store) -> None:
        store.promote(plan(workload=workload(variant="videos=2")))
        assert store.lookup(query()).rung is Rung.NONE
        assert store.lookup(query(variant="videos=2")).rung is Rung.EXACT

    def test_more_memory_kept_free_than_asked_for_is_enough(self, store: Store) -> None:
        store.promote(plan(constraints=Constraints(links=("0,0:1,0=0.5",))))
        assert store.lookup(query()).plan is None
        assert store.lookup(query(constraints=Constraints(links=("0,0:1,0=0.5",)))).rung is Rung.EXACT
        store.promote(plan(constraints=Constraints(reserve_hbm_bytes=2 << 30)))
        assert store.lookup(query(constraints=Constraints(reserve_hbm_bytes=1 << 30))).rung is Rung.EXACT
        answer = store.lookup(query(constraints=Constraints(reserve_hbm_bytes=3 << 30)))
        assert answer.rung is Rung.NONE
        assert str(3 << 30) in answer.reasons[0]

    def test_an_empty_store_answers_with_reasons(self, store: Store) -> None:
        answer = store.lookup(query())
        assert (answer.rung, answer.plan) == (Rung.NONE, None)
        assert MODEL in answer.reasons[0]

    def test_names_are_only_ever_values(self, store: Store) -> None:
        store.promote(plan())
        odd = query(model="x' OR '1'='1", shape='"; --', slice_name="%", variant="_", revision="\\")
        assert store.lookup(odd).rung is Rung.NONE


class StoreContract(TrialStoreContract, ProgramStoreContract, PlanStoreContract, LookupContract):
    """All of it."""

    def test_a_store_is_a_context_manager(self, store: Store) -> None:
        with store as inside:
            assert inside is store
            assert list(inside.plans()) == []


__all__ = ["StoreContract", "candidate", "query"]
