"""A study whose screens and compiles are stubs, for figures of what is around them: store, leases, Optuna, funnel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.calibration.records import constants
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Choice, Dimension, Space
from tuner.plans.toolchain import Toolchain
from tuner.ports import ArgumentSharding, Compiled, Screened, WorkloadSpec
from tuner.program.program import Compute, ComputeKind, Memory, Program
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.revision import study_key
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.stores import Store
from tuner.work import Task

SLICE = "v5e-2x2"
TOOLCHAIN = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")
_DIGITS, _BASE = ("hundreds", "tens", "ones"), 28
EXHAUSTIVE = Settings(budget_s=None, patience=None, slack=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StubWorkload:
    """One mesh axis over the slice, and three options whose values number the candidates."""

    candidates: int
    shape: str = "1x1x1"

    @property
    def name(self) -> str:
        return f"stub@{self.shape}"

    @property
    def identity(self) -> Mapping[str, str]:
        return {"revision": "1"}

    @property
    def source(self) -> str:
        return "1"

    @property
    def space(self) -> Space:
        digits = range(_BASE)
        return Space(
            dimensions=(Dimension(name="data", sizes=(1, 2, 4)),),
            options=tuple(Choice(name=name, values=tuple(digits)) for name in _DIGITS),
        )

    def verdict(self, layout: Layout) -> Rejection | None:
        if number_of(layout) < self.candidates:
            return None
        return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.ILLEGAL_OPTIONS, detail="beyond the last")

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        return {"A": Layout.of({"data": slice_.num_devices}, dict.fromkeys(_DIGITS, 0))}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return []


def number_of(layout: Layout) -> int:
    number = 0
    for name in _DIGITS:
        number = number * _BASE + int(layout.option(name))
    return number


def _program(layout: Layout, cycles: int) -> Program:
    return Program(
        devices=layout.devices,
        schedule=(Compute(name="dot", kind=ComputeKind.MATMUL, flops=1e9, cycles=cycles),),
        memory=Memory(argument_bytes=1 << 20, output_bytes=0, temp_bytes=1 << 20),
    )


class StubScreener:
    def screen(
        self, workload: WorkloadSpec, slice_: Slice, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        for candidate in candidates:
            program = _program(candidate.layout, 1000)
            yield candidate, Screened(program=program, least_bytes=1 << 20, digest=candidate.digest)


@dataclass(slots=True, kw_only=True)
class StubCompiler:
    """Takes `seconds` for a candidate; the later ones of the space are a little slower, and none is pruned."""

    seconds: float = 0.0

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        if known is not None and known(candidate.digest):
            return None
        time.sleep(self.seconds)
        return Compiled(
            program=_program(candidate.layout, 1_000_000 + number_of(candidate.layout)),
            lowered_digest=candidate.digest,
            arguments=(ArgumentSharding(path="x", shape=(8,), dtype="bfloat16", spec=(("data",),)),),
            compile_s=self.seconds,
        )


def resolve(spec: WorkloadSpec) -> StubWorkload:
    return StubWorkload(candidates=spec.parameters["candidates"], shape=spec.parameters["shape"])


def publish(store: Store, *, candidates: int, shape: str = "1x1x1") -> int:
    """Opens a study for workers and returns its id."""
    workload, slice_ = StubWorkload(candidates=candidates, shape=shape), parse_slice(SLICE)
    key = study_key(
        workload, slice_, TOOLCHAIN, EXHAUSTIVE.constraints, constants(store, slice_.generation_name, TOOLCHAIN)
    )
    study = store.open_study(key)
    store.publish(
        Task(
            study_id=study.id,
            key_digest=key.digest,
            spec=WorkloadSpec(model="stub", parameters={"candidates": candidates, "shape": shape}),
            slice_name=SLICE,
            toolchain=TOOLCHAIN,
            settings=EXHAUSTIVE,
            space=workload.space,
        )
    )
    return study.id
