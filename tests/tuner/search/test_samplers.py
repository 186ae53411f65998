"""Optuna drives: proposals with placements, prunes that are the pruner's, repeats that cost nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState as OptunaState

from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tests.tuner.search.test_funnel import EXHAUSTIVE, SLICE, Bench, legal
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Choice, Space
from tuner.placements.ranking import ordered_axes, rank
from tuner.ports import Compiled, Screened, WorkloadSpec
from tuner.program.program import Compute, Program
from tuner.rejections import Rejection, RejectReason
from tuner.search.parameters import Parameters
from tuner.search.physical import describe
from tuner.search.pruner import BOUND_STEP, BoundPruner
from tuner.search.settings import SamplerName, Settings
from tuner.search.trials import DUPLICATE_OF, PHYSICAL, PROPOSED
from tuner.stores import TrialState
from tuner.timeline.ranker import Ranker

SAMPLERS = [SamplerName.TPE, SamplerName.RANDOM]


def settings(sampler: SamplerName, seed: int = 0) -> Settings:
    """Nothing but the sampler decides what comes next."""
    return replace(EXHAUSTIVE, sampler=sampler, seed=seed, tune_after=10**9)


def compiled(candidate: Any) -> Compiled:
    outcome = FakeCompiler().compile(WorkloadSpec(model="fake"), SLICE, candidate)
    assert isinstance(outcome, Compiled)
    return outcome


@pytest.mark.parametrize("sampler", list(SamplerName))
def test_physical_parameters_have_one_fixed_domain_of_several_values(sampler: SamplerName) -> None:
    bench = Bench()
    outcome = bench.run(settings(sampler))
    domains: dict[str, CategoricalDistribution] = {}
    logical = Parameters(FakeWorkload().space).distributions
    physical = 0
    for trial in bench.study.trials:
        for name, distribution in trial.distributions.items():
            assert isinstance(distribution, CategoricalDistribution)
            assert domains.setdefault(name, distribution) == distribution
            if name not in logical:
                physical += 1
                assert len(distribution.choices) > 1
                assert all(isinstance(choice, str) for choice in distribution.choices)
                assert trial.state is OptunaState.COMPLETE
    assert physical > 0
    assert len({trial.number for trial in outcome.trials}) == len(outcome.trials)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_proposed_placement_is_what_is_predicted(sampler: SamplerName) -> None:
    bench = Bench()
    outcome = bench.run(settings(sampler))
    trials = [t for t in bench.store.trials(outcome.study.id) if PROPOSED in t.numbers]
    assert trials
    worse = 0
    for trial in trials:
        assert trial.placement is not None
        program, layout = compiled(trial.candidate).program, trial.candidate.layout
        ranker = Ranker(program, SLICE, layout, calibration("v5e"))
        assert trial.predicted_s == pytest.approx(ranker.step_s(np.array([trial.placement.devices]))[0])
        answers = describe(SLICE, layout, ordered_axes(ranker), trial.placement.devices)
        assert answers is not None
        named = {question.name: value for question, value in answers.items()}
        assert trial.details[PHYSICAL] == named
        params = bench.study.trials[trial.number].params
        assert named.items() <= params.items()
        worse += trial.predicted_s > rank(program, SLICE, layout, calibration("v5e")).best[0].step_s * 1.001
    assert worse  # not every placement is the best one
    assert not outcome.proved


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_placement_of_a_layout_is_predicted_twice_and_no_layout_compiled_twice(sampler: SamplerName) -> None:
    bench = Bench()
    outcome = bench.run(settings(sampler))
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)
    trials = [t for t in bench.store.trials(outcome.study.id) if PROPOSED in t.numbers]
    pairs = [(t.candidate.digest, t.placement) for t in trials]
    assert len(set(pairs)) == len(pairs)
    assert len({digest for digest, _ in pairs}) < len(pairs)


def heavier(program: Program, layout: Layout) -> Program:
    """Returns a program with as many times the work as there are tensor shards, so that bounds tell layouts apart."""
    times = layout.size("tensor")
    return replace(
        program,
        schedule=tuple(
            replace(node, flops=node.flops * times, cycles=node.cycles and node.cycles * times)
            if isinstance(node, Compute)
            else node
            for node in program.schedule
        ),
    )


class HeavierScreener(FakeScreener):
    def screen(self, *args: Any) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        for candidate, outcome in super().screen(*args):
            assert isinstance(outcome, Screened)
            yield candidate, replace(outcome, program=heavier(outcome.program, candidate.layout))


class HeavierCompiler(FakeCompiler):
    def compile(self, workload: Any, slice_: Any, candidate: Candidate, **kwargs: Any) -> Any:
        outcome = super().compile(workload, slice_, candidate, **kwargs)
        return replace(outcome, program=heavier(outcome.program, candidate.layout)) if outcome else outcome


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_without_the_pruner_more_is_compiled(sampler: SamplerName) -> None:
    counts: dict[bool, list[int]] = {True: [], False: []}
    for pruned in counts:
        for seed in range(3):
            bench = Bench()
            bench.screener, bench.compiler = HeavierScreener(), HeavierCompiler()
            bench.run(settings(sampler, seed), pruner=None if pruned else optuna.pruners.NopPruner())
            counts[pruned].append(len(bench.compiler.asked))
            reasons = {trial.user_attrs.get("reject_reason") for trial in bench.study.trials}
            assert (RejectReason.BOUND.value in reasons) is pruned
    assert max(counts[True]) < min(counts[False])


def test_prunes_are_what_should_prune_says() -> None:
    class Asked(BoundPruner):
        answers: list[bool] = []

        def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
            self.answers.append(super().prune(study, trial))
            return self.answers[-1]

    bench = Bench()
    bench.screener, bench.compiler = HeavierScreener(), HeavierCompiler()
    parameters, pruner = Parameters(bench.workload.space), Asked()
    search = bench.search(replace(EXHAUSTIVE, max_trials=3), pruner=pruner)
    search.run()
    hopeless = [candidate for candidate in legal() if candidate.layout.size("tensor") == 4]
    known = {trial.user_attrs["candidate"] for trial in bench.study.trials}
    fresh = next(candidate for candidate in hopeless if candidate.digest not in known)
    bench.study.enqueue_trial(parameters.params(fresh))
    before = len(bench.compiler.asked)
    outcome = bench.run(replace(EXHAUSTIVE, max_trials=3), pruner=pruner)
    ended = next(t for t in bench.store.trials(outcome.study.id) if t.candidate == fresh)
    assert ended.rejection is not None
    assert ended.rejection.reason is RejectReason.BOUND
    assert bench.study.trials[ended.number].state is OptunaState.PRUNED
    assert bench.study.trials[ended.number].intermediate_values == {BOUND_STEP: ended.bound_s}
    assert pruner.answers[-1]
    assert len(bench.compiler.asked) == before


def test_an_identical_layout_that_somebody_enqueues_is_linked_and_not_compiled() -> None:
    bench = Bench()
    search = bench.search(replace(EXHAUSTIVE, max_trials=3))
    parameters = Parameters(bench.workload.space)
    params = parameters.params(legal()[0])
    for _ in range(2):
        bench.study.enqueue_trial(params)
    outcome = search.run()
    first, second = bench.study.trials[:2]
    assert (first.params.items() & params.items()) == params.items()
    assert first.state is OptunaState.COMPLETE
    assert second.state is OptunaState.PRUNED
    assert second.user_attrs["duplicate_of"] == first.number
    assert second.user_attrs["reject_reason"] == "duplicate"
    ours = bench.store.trials(outcome.study.id)[1]
    assert ours.rejection is not None
    assert (ours.rejection.reason, ours.numbers[DUPLICATE_OF]) == (RejectReason.DUPLICATE, 0.0)
    assert len(set(bench.compiler.asked)) == len(bench.compiler.asked)
    again = bench.run(replace(EXHAUSTIVE, max_trials=3))
    assert again.trials[0] == outcome.trials[0]


def test_what_somebody_enqueues_is_judged_like_everything_else() -> None:
    bench = Bench()
    search = bench.search(replace(EXHAUSTIVE, max_trials=3))
    names = Parameters(bench.workload.space).defaults
    bench.study.enqueue_trial({**names, "data": 2, "tensor": 2})
    bench.study.enqueue_trial({**names, "data": 1, "tensor": 8})
    outcome = search.run()
    wrong, illegal = bench.store.trials(outcome.study.id)[:2]
    assert wrong.rejection is not None
    assert "4 devices" in wrong.rejection.detail
    assert illegal.rejection is not None
    assert illegal.rejection.detail == "4 heads over 8"


def test_layouts_of_one_program_are_linked() -> None:
    bench = Bench(lowered=lambda candidate: f"{candidate.layout.axes}")
    outcome = bench.run()
    linked = [trial for trial in outcome.trials if DUPLICATE_OF in trial.numbers]
    assert linked
    by_number = {trial.number: trial for trial in outcome.trials}
    for trial in linked:
        first = by_number[int(trial.numbers[DUPLICATE_OF])]
        assert first.candidate.layout.axes == trial.candidate.layout.axes
        assert bench.study.trials[trial.number].user_attrs["duplicate_of"] == first.number


class Wider(FakeWorkload):
    """Offers one more way to keep weights and one size more."""

    @property
    def space(self) -> Space:
        space = super().space
        return dataclasses.replace(
            space, options=(Choice(name="weights", values=("replicated", "data", "nowhere")), *space.options[1:])
        )


@pytest.mark.parametrize("sampler", list(SamplerName))
def test_other_candidates_make_a_new_study_and_old_results_stay(sampler: SamplerName) -> None:
    bench = Bench()
    old = bench.run(settings(sampler))
    new = bench.run(settings(sampler), workload=Wider())
    assert new.study.key.space_revision != old.study.key.space_revision
    assert {study.id for study in bench.store.studies()} == {old.study.id, new.study.id}
    assert len(optuna.get_all_study_names(bench.optuna)) == 2
    kept = bench.store.trials(old.study.id)
    assert {trial.number for trial in old.trials} <= {trial.number for trial in kept}
    widened = optuna.load_study(study_name=new.study.key.name, storage=bench.optuna).trials[0].distributions["weights"]
    assert isinstance(widened, CategoricalDistribution)
    assert widened.choices == ("replicated", "data", "nowhere")
    assert bench.run(settings(sampler)).trials[0] == old.trials[0]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler_goes_on_from_what_is_stored(sampler: SamplerName) -> None:
    bench = Bench()
    first = bench.run(replace(settings(sampler), max_trials=4))
    placed = [(t.candidate.digest, t.placement) for t in bench.store.trials(first.study.id) if PROPOSED in t.numbers]
    second = bench.run(settings(sampler, seed=1))
    trials = [t for t in bench.store.trials(second.study.id) if PROPOSED in t.numbers]
    pairs = [(t.candidate.digest, t.placement) for t in trials]
    assert placed == pairs[: len(placed)]
    assert len(set(pairs)) == len(pairs) > len(placed)


def test_a_lost_optuna_study_is_rebuilt_with_its_placements() -> None:
    bench = Bench()
    bench.run(settings(SamplerName.TPE))
    before = bench.study.trials
    bench.optuna = optuna.storages.InMemoryStorage()
    bench.run(settings(SamplerName.TPE))
    after = bench.study.trials[: len(before)]
    assert [(t.state, t.value, t.params, t.user_attrs) for t in after] == [
        (t.state, t.value, t.params, t.user_attrs) for t in before
    ]


def test_states_are_the_same_in_both_books() -> None:
    bench = Bench()
    outcome = bench.run(settings(SamplerName.TPE))
    states = {TrialState.COMPLETE: OptunaState.COMPLETE, TrialState.REJECTED: OptunaState.PRUNED}
    ours, theirs = bench.store.trials(outcome.study.id), bench.study.trials
    assert [states[trial.state] for trial in ours] == [trial.state for trial in theirs]
    assert [trial.number for trial in ours] == [trial.number for trial in theirs]
