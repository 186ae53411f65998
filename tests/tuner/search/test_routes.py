"""The funnel where the compiled program depends on the placement: v5e slices of more than 16 chips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import optuna
import pytest

import storage
from tests.tuner.search.fakes import groups
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Choice, Dimension, Space
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiled, Screened, WorkloadSpec
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Program
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.screening.bounds import lower_bound
from tuner.search.funnel import Search
from tuner.search.outcome import Outcome
from tuner.search.prospects import Prospect
from tuner.search.routes import Routes
from tuner.search.settings import SamplerName, Settings
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.stores import Store
from tuner.timeline.ranker import Ranker

LARGE, SMALL = parse_slice("v5e-4x8"), parse_slice("v5e-4x4")
MIB = 1 << 20


def pairs_around(layout: Layout) -> tuple[tuple[int, int], ...]:
    """Every member of a tensor group sends to the next one."""
    return tuple(
        (a, b) for group in groups(layout, "tensor") for a, b in zip(group, (*group[1:], group[0]), strict=True)
    )


def scrambled(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Pairs that no structured placement puts within reach of one another."""
    order = np.random.default_rng(5).permutation(layout.devices)
    return tuple(map(tuple, order.reshape(-1, 2).tolist()))


def program(layout: Layout) -> Program:
    flops = 1e13 / layout.devices
    collectives = [
        Collective(
            name="cp",
            kind=CollectiveKind.COLLECTIVE_PERMUTE,
            operand_bytes=MIB,
            result_bytes=MIB,
            pairs=pairs_around(layout),
        )
    ]
    if layout.option("mix") == "scrambled":
        reduced = Collective(
            name="ar",
            kind=CollectiveKind.ALL_REDUCE,
            operand_bytes=MIB,
            result_bytes=MIB,
            groups=scrambled(layout),
        )
        collectives.append(reduced)
    dot = Compute(name="dot", kind=ComputeKind.MATMUL, flops=flops, cycles=int(1.1 * flops / 1.97e14 * 1.5e9))
    return Program(devices=layout.devices, schedule=(dot, *collectives))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotating:
    """Data is split over two axes; along one of them everything goes around."""

    name: str = "rotating@1x1x1"
    identity: Mapping[str, str] = field(default_factory=lambda: {"revision": "1"})
    source: str = ""
    space: Space = field(
        default_factory=lambda: Space(
            dimensions=(Dimension(name="data", sizes=(1, 2, 4, 8)), Dimension(name="tensor", sizes=(1, 4, 8))),
            options=(Choice(name="mix", values=("plain", "scrambled")),),
            compiler=(Choice(name="xla_fast", values=("default", "true")),),
        )
    )

    def verdict(self, layout: Layout) -> Rejection | None:
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        return {"A": Layout.of({"data": slice_.num_devices // 4, "tensor": 4}, {"mix": "plain"})}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return ()


@dataclass(slots=True, kw_only=True)
class Both:
    """A screener and a compiler; the compiler refuses what has no routes, as the real one does."""

    asked: list[Candidate] = field(default_factory=list)

    def screen(
        self, workload: WorkloadSpec, slice_: Slice, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        for candidate in candidates:
            yield candidate, Screened(program=program(candidate.layout), least_bytes=MIB, digest=candidate.digest)

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        self.asked.append(candidate)
        made = program(candidate.layout)
        in_order = Placement(devices=tuple(range(slice_.num_devices)))
        refusal = ranker(candidate.layout, slice_).verdict(candidate.placement or in_order)
        return refusal or Compiled(program=made, lowered_digest=candidate.digest, arguments=(), compile_s=0.0)


def ranker(layout: Layout, slice_: Slice = LARGE) -> Ranker:
    return Ranker(program(layout), slice_, layout, calibration("v5e"))


def directness(candidate: Candidate) -> tuple[bool, ...]:
    """What tells the classes of placements of a layout apart."""
    assert candidate.placement is not None
    return tuple(ranker(candidate.layout).direct(np.array([candidate.placement.devices]))[0].tolist())


class Bench:
    def __init__(self) -> None:
        self.store: Store = storage.open_store("memory://")
        self.optuna = optuna.storages.InMemoryStorage()
        self.both = Both()

    def run(self, slice_: Slice = LARGE, sampler: SamplerName = SamplerName.BEST_FIRST, jobs: int = 1) -> Outcome:
        return Search(
            workload=Rotating(),
            spec=WorkloadSpec(model="rotating"),
            slice_=slice_,
            toolchain=Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1"),
            screener=self.both,
            compiler=self.both,
            store=self.store,
            optuna_storage=self.optuna,
            settings=Settings(budget_s=None, patience=None, slack=None, sampler=sampler),
            jobs=jobs,
        ).run()


@pytest.fixture(scope="module")
def finished() -> tuple[Bench, Outcome]:
    bench = Bench()
    return bench, bench.run(jobs=2)


def test_each_class_is_compiled_under_a_placement_of_its_own(finished: tuple[Bench, Outcome]) -> None:
    bench, outcome = finished
    assert all(candidate.placement is not None for candidate in bench.both.asked)
    programs = [(candidate.layout, candidate.compiler_options, directness(candidate)) for candidate in bench.both.asked]
    assert len(set(programs)) == len(programs)
    plain = Layout.of({"data": 8, "tensor": 4}, {"mix": "plain"})
    placements = [t.candidate.placement for t in outcome.trials if t.candidate.layout == plain]
    compiled = np.array([placement.devices for placement in placements if placement is not None])
    assert set(ranker(plain).direct(compiled)[:, 0].tolist()) == {True, False}


def test_a_plan_stays_in_the_class_that_it_was_compiled_for(finished: tuple[Bench, Outcome]) -> None:
    _, outcome = finished
    assert outcome.plan is not None
    for trial in outcome.trials:
        assert trial.placement is not None
        assert trial.candidate.placement is not None
        both = np.array([trial.placement.devices, trial.candidate.placement.devices])
        direct = ranker(trial.candidate.layout).direct(both)
        assert (direct[0] == direct[1]).all()
    assert outcome.plan.plan.step_s == outcome.trials[0].predicted_s
    assert outcome.proved


def test_what_has_no_routes_anywhere_is_rejected_before_the_compile(finished: tuple[Bench, Outcome]) -> None:
    bench, outcome = finished
    rejections = {
        trial.candidate.layout.size("tensor"): trial.rejection
        for trial in bench.store.trials(outcome.study.id)
        if trial.candidate.layout.option("mix") == "scrambled"
    }
    assert set(rejections) == {4, 8}
    for rejection in rejections.values():
        assert rejection is not None
        assert rejection.reason is RejectReason.ROUTING
        assert rejection.stage is Stage.SCREEN
        assert "all-reduce over data+tensor in groups of 2" in rejection.detail
    assert all(candidate.layout.option("mix") == "plain" for candidate in bench.both.asked)


def test_baselines_are_compiled_in_the_default_order(finished: tuple[Bench, Outcome]) -> None:
    _, outcome = finished
    assert set(outcome.baselines) == {"A", "B"}
    for baseline in outcome.baselines.values():
        assert baseline.candidate.placement == jax_default(LARGE, baseline.candidate.layout)
        assert baseline.numbers["default_step_s"] >= (baseline.predicted_s or 0.0)


def test_a_second_run_compiles_nothing(finished: tuple[Bench, Outcome]) -> None:
    bench, outcome = finished
    before = len(bench.both.asked)
    assert bench.run().plan == outcome.plan
    assert len(bench.both.asked) == before


@pytest.mark.parametrize("sampler", [SamplerName.TPE, SamplerName.RANDOM])
def test_samplers_name_layouts_and_get_their_classes(finished: tuple[Bench, Outcome], sampler: SamplerName) -> None:
    bench = Bench()
    outcome = bench.run(sampler=sampler)
    # Its placements are the sampler's, which needs not find the best one.
    best_s = finished[1].trials[0].predicted_s
    assert best_s is not None
    assert outcome.trials[0].predicted_s == pytest.approx(best_s, rel=0.01)
    assert not outcome.proved
    assert len({candidate.digest for candidate in bench.both.asked}) == len(bench.both.asked)


def test_elsewhere_candidates_have_no_placement() -> None:
    bench = Bench()
    outcome = bench.run(SMALL)
    assert bench.both.asked
    assert all(candidate.placement is None for candidate in bench.both.asked)
    assert {trial.candidate.layout.option("mix") for trial in outcome.trials} >= {"plain"}


def test_a_chip_that_is_cut_off_is_told_apart_from_routes_that_never_were() -> None:
    layout = Layout.of({"data": 8, "tensor": 4}, {"mix": "plain"})
    screened = Screened(program=program(layout), least_bytes=MIB, digest="1")
    prospect = Prospect(
        candidate=Candidate(layout=layout),
        screened=screened,
        bound=lower_bound(screened, LARGE, calibration("v5e")),
        estimate_s=1.0,
    )
    whole = Routes(LARGE, calibration("v5e")).classes(prospect)
    assert not isinstance(whole, Rejection)
    assert [entry.estimate_s for entry in whole] == sorted(entry.estimate_s for entry in whole)
    missing = [Degraded.parse(text) for text in ("0,0:1,0=0", "0,0:0,1=0")]
    refusal = Routes(LARGE, calibration("v5e"), missing).classes(prospect)
    assert isinstance(refusal, Rejection)
    assert refusal.reason is RejectReason.ROUTING
    assert "a link that is missing" in refusal.detail
