import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import optuna
import pytest

import storage
from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate
from tuner.layouts.space import enumerate_layouts
from tuner.network.cost import Degraded
from tuner.placements.ranking import rank
from tuner.plans.plan import Constraints, Evidence
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.events import Event, TrialEnded
from tuner.search.funnel import Search
from tuner.search.outcome import Outcome
from tuner.search.settings import SamplerName, Settings
from tuner.slices.slice import Slice
from tuner.stores import Store, Trial, TrialState
from tuner.timeline.ranker import Ranker

SLICE = Slice(generation_name="v5e", shape=(2, 4), wrap=(False, False))
TOOLCHAIN = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")
EXHAUSTIVE = Settings(budget_s=None, patience=None, slack=None)


NO = Rejection(stage=Stage.COMPILE, reason=RejectReason.COMPILER_ERROR, detail="for the test")


class Bench:
    """A store, an Optuna storage and fakes that several searches share."""

    def __init__(self, **fakes: Any) -> None:
        self.store: Store = storage.open_store("memory://")
        self.optuna = optuna.storages.InMemoryStorage()
        self.workload = FakeWorkload(**{k: v for k, v in fakes.items() if k == "weight_bytes"})
        self.screener = FakeScreener(**{k: v for k, v in fakes.items() if k == "weight_bytes"})
        self.compiler = FakeCompiler(**fakes)
        self.events: list[Event] = []

    def search(self, settings: Settings = EXHAUSTIVE, **changes: Any) -> Search:
        arguments: dict[str, Any] = {
            "workload": self.workload,
            "spec": WorkloadSpec(model="fake"),
            "slice_": SLICE,
            "toolchain": TOOLCHAIN,
            "screener": self.screener,
            "compiler": self.compiler,
            "store": self.store,
            "optuna_storage": self.optuna,
            "settings": settings,
            "listener": self.events.append,
        }
        return Search(**(arguments | changes))

    def run(self, settings: Settings = EXHAUSTIVE, **changes: Any) -> Outcome:
        return self.search(settings, **changes).run()

    @property
    def study(self) -> optuna.Study:
        (name,) = optuna.get_all_study_names(self.optuna)
        return optuna.load_study(study_name=name, storage=self.optuna)


def legal() -> list[Candidate]:
    """Every candidate of the space: layouts, blocks and flags."""
    workload = FakeWorkload()
    outcomes = enumerate_layouts(workload.space, 8, workload.verdict)
    layouts = [outcome for outcome in outcomes if not isinstance(outcome, Rejection)]
    return [
        Candidate(layout=layout.replace_options(blocks=blocks), compiler_options=flags)
        for layout in layouts
        for blocks in ("512", "1024")
        for flags in ((), (("xla_fast", "true"),))
    ]


def best_of_all() -> float:
    """The best prediction over the whole space, by compiling and ranking all of it."""
    times = []
    for candidate in legal():
        compiled = FakeCompiler().compile(WorkloadSpec(model="fake"), SLICE, candidate)
        assert isinstance(compiled, Compiled)
        ranked = rank(compiled.program, SLICE, candidate.layout, calibration("v5e"))
        times.append(ranked.best[0].step_s)
    return min(times)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_it_finds_and_proves_the_optimum(jobs: int) -> None:
    bench = Bench()
    outcome = bench.run(jobs=jobs)
    assert outcome.proved
    assert outcome.trials[0].predicted_s == pytest.approx(best_of_all())
    assert outcome.plan is not None
    assert outcome.promoted
    assert outcome.plan.plan.proved
    assert outcome.plan.plan.evidence is Evidence.PREDICTED
    assert outcome.plan.plan.step_s == outcome.trials[0].predicted_s
    assert dict(outcome.trials[0].candidate.compiler_options) == {"xla_fast": "true"}


def test_no_candidate_is_screened_or_compiled_twice() -> None:
    bench = Bench()
    bench.run()
    assert len(set(bench.screener.asked)) == len(bench.screener.asked)
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)


def test_a_second_run_asks_for_nothing_and_keeps_the_plan() -> None:
    bench = Bench()
    first = bench.run()
    screened, compiled = list(bench.screener.asked), list(bench.compiler.asked)
    second = bench.run()
    assert (bench.screener.asked, bench.compiler.asked) == (screened, compiled)
    assert second.plan == first.plan
    assert not second.promoted
    assert [t.number for t in second.trials] == [t.number for t in first.trials]


def test_another_study_reuses_programs() -> None:
    bench = Bench()
    bench.run()
    compiled = len(bench.compiler.asked)
    bench.run(replace(EXHAUSTIVE, constraints=Constraints(reserve_hbm_bytes=1 << 30)))
    assert len(bench.compiler.asked) == compiled
    assert len(bench.store.studies()) == 2


def test_results_of_other_code_are_not_met_again() -> None:
    bench = Bench()
    bench.run()
    layouts, compiled = set(bench.screener.asked), list(bench.compiler.asked)
    bench.screener.asked.clear()
    bench.run(workload=FakeWorkload(code="2"))
    assert bench.screener.asked
    assert set(bench.screener.asked) <= layouts
    assert bench.compiler.asked == compiled  # the edit changed nothing: every program lowered to the same
    bench.compiler.lowered = lambda candidate: f"edited {candidate.digest}"
    bench.compiler.asked.clear()
    bench.run(workload=FakeWorkload(code="3"))
    assert bench.compiler.asked
    assert set(bench.compiler.asked) <= set(compiled)
    assert len(bench.store.studies()) == 3
    assert len(bench.store.plans()) == 1  # the identity is the same: an edit does not outdate the plan


def test_candidates_that_lower_to_one_program_are_compiled_once() -> None:
    bench = Bench(lowered=lambda candidate: "same")
    bench.run()
    assert len(bench.compiler.asked) == 1


def test_baselines_are_trials_and_are_compared_with() -> None:
    outcome = Bench().run()
    assert set(outcome.baselines) == {"A", "B"}
    plan = outcome.plan
    assert plan is not None
    a = next(b for b in plan.plan.baselines if b.name == "A")
    assert a.step_s == outcome.baselines["A"].numbers["default_step_s"]
    assert plan.plan.speedup("A") == pytest.approx(a.step_s / plan.plan.step_s)
    assert outcome.baselines["B"].numbers["received_bytes"] == 0.0


def test_a_baseline_that_does_not_run_is_named_with_its_reason() -> None:
    def fail(candidate: Candidate) -> Rejection | None:
        if candidate.layout.option("weights") == "data" and candidate.layout.size("data") == 8:
            return Rejection(stage=Stage.COMPILE, reason=RejectReason.HBM, detail="needs 20 GiB")
        return None

    outcome = Bench(fail=fail).run()
    assert outcome.missing == {"A": "needs 20 GiB"}
    assert outcome.plan is not None
    assert outcome.plan.plan.speedup("A") is None


def test_nothing_that_cannot_fit_is_compiled() -> None:
    bench = Bench(weight_bytes=40 << 30)
    outcome = bench.run()
    too_big = [t for t in bench.store.trials(outcome.study.id) if t.rejection is not None]
    assert {t.rejection.reason for t in too_big if t.rejection} == {RejectReason.HBM, RejectReason.BOUND} or all(
        t.rejection and t.rejection.reason is RejectReason.HBM for t in too_big
    )
    compiled = {t.candidate.digest for t in outcome.trials}
    assert compiled == set(bench.compiler.asked)
    assert all(t.numbers["memory_bytes"] < 15.75 * 2**30 for t in outcome.trials)


def test_when_nothing_fits_the_nearest_are_told_with_what_they_lack() -> None:
    bench = Bench(weight_bytes=400 << 30)
    outcome = bench.run()
    assert outcome.plan is None
    assert bench.compiler.asked == []
    needed = [t.numbers["needed_bytes"] for t in outcome.rejected]
    assert needed == sorted(needed)
    assert "GiB" in outcome.rejected[0].rejection.detail  # type: ignore[union-attr]


def test_a_reserve_rejects_what_would_fit_without() -> None:
    outcome = Bench().run(replace(EXHAUSTIVE, constraints=Constraints(reserve_hbm_bytes=15 << 30)))
    assert all(t.numbers["memory_bytes"] <= 0.75 * 2**30 for t in outcome.trials)
    assert outcome.trials


def test_a_budget_of_trials_holds_and_is_of_the_study() -> None:
    bench = Bench()
    settings = replace(EXHAUSTIVE, max_trials=3)
    outcome = bench.run(settings)
    assert len(bench.compiler.asked) == 3
    assert not outcome.proved
    assert "3 candidates" in outcome.stopped
    bench.run(settings)
    assert len(bench.compiler.asked) == 3


def test_a_budget_of_time_is_of_the_study() -> None:
    bench = Bench()
    ticks = itertools.count(step=5)
    settings = replace(EXHAUSTIVE, budget_s=60.0)
    first = bench.run(settings, clock=lambda: float(next(ticks)))
    compiled = len(bench.compiler.asked)
    assert "budget of 60 s" in first.stopped
    second = bench.run(settings, clock=lambda: 0.0)
    assert "in earlier runs" in second.stopped
    assert len(bench.compiler.asked) == compiled


def test_a_run_that_has_no_room_for_another_compile_leaves_none_to_the_next() -> None:
    @dataclass(slots=True, kw_only=True)
    class SlowCompiler(FakeCompiler):
        now: int = 0

        def compile(self, *args: Any, **kwargs: Any) -> Any:
            self.now += 20
            return FakeCompiler.compile(self, *args, **kwargs)

    bench = Bench()
    slow = bench.compiler = SlowCompiler()
    settings = replace(EXHAUSTIVE, budget_s=90.0)
    start = datetime(2026, 11, 30, tzinfo=UTC)

    def run() -> Outcome:
        search = bench.search(settings, clock=lambda: float(slow.now))
        search._ledger._clock = lambda: start + timedelta(seconds=slow.now)
        return search.run()

    first = run()
    assert "budget of 90 s is spent (80 s)" in first.stopped
    compiled = len(bench.compiler.asked)
    assert compiled == 4
    assert "budget of 90 s is spent" in run().stopped
    assert len(bench.compiler.asked) == compiled


def test_patience_ends_a_search_without_a_proof() -> None:
    outcome = Bench().run(replace(EXHAUSTIVE, patience=1, variants=0))
    assert not outcome.proved
    assert "not better" in outcome.stopped


def test_everything_is_told_apart_in_optuna_too() -> None:
    bench = Bench()
    outcome = bench.run()
    ours = bench.store.trials(outcome.study.id)
    theirs = bench.study.trials
    assert [t.number for t in theirs] == [t.number for t in ours]
    for mine, other in zip(ours, theirs, strict=True):
        assert other.user_attrs["candidate"] == mine.candidate.digest
        assert (other.state.name == "COMPLETE") == (mine.state is TrialState.COMPLETE)
        assert other.params["data"] == mine.candidate.layout.size("data")
        if mine.predicted_s is not None:
            assert other.value == mine.predicted_s
    assert bench.study.best_trial.number == outcome.trials[0].number


@pytest.mark.parametrize("sampler", [SamplerName.TPE, SamplerName.RANDOM])
def test_other_samplers_drive_the_same_funnel(sampler: SamplerName) -> None:
    bench = Bench()
    outcome = bench.run(replace(EXHAUSTIVE, sampler=sampler, seed=3))
    assert outcome.trials[0].predicted_s == pytest.approx(best_of_all())
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)


def test_the_seed_makes_a_run_repeatable() -> None:
    def numbers(outcome: Outcome) -> list[tuple[int, str]]:
        return [(t.number, t.candidate.digest) for t in outcome.trials]

    settings = replace(EXHAUSTIVE, sampler=SamplerName.RANDOM, max_trials=4, seed=7)
    assert numbers(Bench().run(settings)) == numbers(Bench().run(settings))
    assert numbers(Bench().run(jobs=2)) == numbers(Bench().run(jobs=2))


def test_an_interrupt_leaves_everything_saved_and_the_next_run_goes_on() -> None:
    bench = Bench()

    def stop_after_two(event: Event) -> None:
        bench.events.append(event)
        if isinstance(event, TrialEnded) and event.trial.number >= 2:
            raise KeyboardInterrupt

    outcome = bench.run(listener=stop_after_two)
    assert outcome.interrupted
    assert outcome.plan is not None
    before = len(bench.compiler.asked)
    second = bench.run()
    assert second.proved
    assert len(bench.compiler.asked) > before
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)


def test_a_compiler_that_is_interrupted_leaves_no_running_trial() -> None:
    def fail(candidate: Candidate) -> Rejection | None:
        raise KeyboardInterrupt

    bench = Bench(fail=fail)
    outcome = bench.run()
    assert outcome.interrupted
    assert {t.state for t in bench.store.trials(outcome.study.id)} == {TrialState.INTERRUPTED}
    assert {t.state.name for t in bench.study.trials} == {"FAIL"}


def test_a_kill_between_the_two_books_is_mended() -> None:
    bench = Bench()
    search = bench.search()
    number, candidate = 0, legal()[0]
    bench.study.ask()  # a worker asked and was killed
    study_id = bench.store.studies()[0].id
    lost = Trial(
        number=number,
        candidate=candidate,
        state=TrialState.COMPLETE,
        stage=Stage.PLACE,
        predicted_s=0.5,
        numbers={"default_step_s": 0.5},
    )
    bench.store.save_trials(study_id, [lost])
    search.run()
    assert bench.study.trials[0].value == 0.5


def test_a_slow_link_makes_a_study_of_its_own_and_is_avoided() -> None:
    bench = Bench(fail=lambda c: None if c.layout.size("tensor") == 2 else NO)
    whole = bench.run()
    compiled = len(bench.compiler.asked)
    link = "0,0:0,1=0.05"
    slow = bench.run(replace(EXHAUSTIVE, constraints=Constraints(links=(link,))))
    assert len(bench.store.studies()) == 2
    assert len(bench.compiler.asked) == compiled  # programs are the same
    assert whole.plan is not None
    assert slow.plan is not None
    assert slow.plan.plan.constraints.links == (link,)
    assert slow.plan.plan.step_s >= whole.plan.plan.step_s
    best = slow.trials[0]
    compiled_best = FakeCompiler().compile(WorkloadSpec(model="fake"), SLICE, best.candidate)
    assert isinstance(compiled_best, Compiled)
    ranker = Ranker(compiled_best.program, SLICE, best.candidate.layout, calibration("v5e"), [Degraded.parse(link)])
    kept = ranker.step_s(np.array([whole.plan.plan.placement.devices]))[0]
    assert slow.plan.plan.step_s <= kept


def test_a_transient_failure_is_tried_again_in_another_study_and_a_lasting_one_is_not() -> None:
    for reason, again in ((RejectReason.TIMEOUT, True), (RejectReason.SCOPED_VMEM, False)):
        bench = Bench(fail=lambda c, reason=reason: Rejection(stage=Stage.COMPILE, reason=reason, detail="no"))
        bench.run()
        first = len(bench.compiler.asked)
        bench.run(replace(EXHAUSTIVE, constraints=Constraints(reserve_hbm_bytes=1)))
        assert (len(bench.compiler.asked) > first) is again


def test_a_recheck_compiles_one_candidate_and_a_search_after_it_goes_on_from_there() -> None:
    bench = Bench()
    winner = bench.run().trials[0]
    asked = len(bench.compiler.asked)
    newer = replace(TOOLCHAIN, libtpu="0.0.51")
    checked = bench.search(toolchain=newer).recheck(winner.candidate)
    assert len(bench.compiler.asked) == asked + 1
    (again,) = checked.trials
    assert again.candidate == winner.candidate
    assert again.predicted_s == winner.predicted_s
    assert checked.promoted
    assert checked.plan is not None
    assert checked.plan.plan.toolchain == newer
    assert checked.plan.plan.baselines == ()

    searched = bench.run(toolchain=newer)
    assert bench.compiler.asked.count(winner.candidate.digest) == 2  # once under each toolchain
    assert searched.proved
    assert searched.plan is not None
    assert searched.plan.plan.speedup("A") is not None  # the same decision, with what the recheck did not know
    repeated = bench.search(toolchain=newer).recheck(winner.candidate)
    assert repeated.plan == searched.plan
    assert bench.store.studies()[0].proved  # a recheck that did nothing takes no proof away


def test_a_recheck_of_what_no_longer_compiles_says_why() -> None:
    bench = Bench()
    winner = bench.run().trials[0]
    bench.compiler.fail = lambda candidate: NO
    checked = bench.search(toolchain=replace(TOOLCHAIN, libtpu="0.0.51")).recheck(winner.candidate)
    assert checked.plan is None
    assert [trial.rejection for trial in checked.rejected] == [NO]


def test_an_interrupted_recheck_leaves_a_trial_that_a_search_tries_again() -> None:
    def interrupt(candidate: Candidate) -> Rejection | None:
        raise KeyboardInterrupt

    bench = Bench()
    winner = bench.run().trials[0]
    newer = replace(TOOLCHAIN, libtpu="0.0.51")
    bench.compiler.fail = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.search(toolchain=newer).recheck(winner.candidate)
    assert [t.state for t in bench.store.trials(bench.store.studies()[0].id)] == [TrialState.INTERRUPTED]
    bench.compiler.fail = lambda candidate: None
    assert bench.run(toolchain=newer).proved


@pytest.mark.parametrize(("settings", "spent"), [(replace(EXHAUSTIVE, max_trials=3), True), (EXHAUSTIVE, False)])
def test_what_the_budget_ended_says_so(settings: Settings, spent: bool) -> None:
    assert Bench().run(settings).exhausted is spent
