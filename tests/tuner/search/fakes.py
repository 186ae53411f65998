"""A workload, a screener and a compiler with known facts, so that a search can be checked against arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Choice, Dimension, Space
from tuner.ports import ArgumentSharding, Compiled, Screened, WorkloadSpec
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Memory, Program
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice

FLOPS = 1e12
"""Of the whole step; every layout divides them evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeWorkload:
    """Splits over `data` and `tensor`; `weights` may be kept on every device or split over `data`."""

    name: str = "fake@1x1x1"
    weight_bytes: int = 1 << 30
    code: str = "1"

    @property
    def identity(self) -> Mapping[str, str]:
        return {"revision": "1"}

    @property
    def source(self) -> str:
        return self.code

    @property
    def space(self) -> Space:
        return Space(
            dimensions=(Dimension(name="data", sizes=(1, 2, 4, 8)), Dimension(name="tensor", sizes=(1, 2, 4, 8))),
            options=(Choice(name="weights", values=("replicated", "data")),),
            tuned=(Choice(name="blocks", values=("512", "1024")),),
            compiler=(Choice(name="xla_fast", values=("default", "true")),),
        )

    def verdict(self, layout: Layout) -> Rejection | None:
        if layout.option("weights") == "data" and layout.size("data") == 1:
            return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.ILLEGAL_OPTIONS, detail="data is 1")
        if layout.size("tensor") == 8:
            return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.INDIVISIBLE, detail="4 heads over 8")
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        layout = Layout.of({"data": slice_.num_devices, "tensor": 1}, {"weights": "data", "blocks": "512"})
        return {"A": layout}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return [layout.replace_options(blocks=blocks) for blocks in ("1024", "512")]


def argument_bytes(layout: Layout, weight_bytes: int) -> int:
    shards = layout.size("tensor") * (layout.size("data") if layout.option("weights") == "data" else 1)
    return weight_bytes // shards


def groups(layout: Layout, axis: str) -> tuple[tuple[int, ...], ...]:
    """Replica groups along one of the two axes."""
    data, tensor = layout.size("data"), layout.size("tensor")
    if axis == "tensor":
        return tuple(tuple(d * tensor + t for t in range(tensor)) for d in range(data))
    return tuple(tuple(d * tensor + t for d in range(data)) for t in range(tensor))


def schedule(layout: Layout, waste: float) -> tuple[Compute | Collective, ...]:
    """Matrix products at the peak times `waste`, an all-reduce over tensor, an all-gather over data."""
    flops = FLOPS / layout.devices
    nodes: list[Compute | Collective] = [
        Compute(name="dot", kind=ComputeKind.MATMUL, flops=flops, cycles=math.ceil(waste * flops / 1.97e14 * 1.5e9))
    ]
    if layout.size("tensor") > 1:
        nodes.append(
            Collective(
                name="ar",
                kind=CollectiveKind.ALL_REDUCE,
                operand_bytes=1 << 22,
                result_bytes=1 << 22,
                groups=groups(layout, "tensor"),
            )
        )
    if layout.option("weights") == "data":
        nodes.append(
            Collective(
                name="ag",
                kind=CollectiveKind.ALL_GATHER,
                operand_bytes=(1 << 22) // layout.size("data"),
                result_bytes=1 << 22,
                groups=groups(layout, "data"),
            )
        )
    return tuple(nodes)


@dataclass(slots=True, kw_only=True)
class FakeScreener:
    weight_bytes: int = 1 << 30
    asked: list[str] = field(default_factory=list)

    def screen(
        self, workload: WorkloadSpec, slice_: Slice, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        for candidate in candidates:
            self.asked.append(candidate.digest)
            layout = candidate.layout
            size = argument_bytes(layout, self.weight_bytes)
            program = Program(
                devices=layout.devices,
                schedule=schedule(layout, 1.0),
                memory=Memory(argument_bytes=size, output_bytes=0, temp_bytes=0),
            )
            yield candidate, Screened(program=program, least_bytes=1 << 20, digest=candidate.digest)


@dataclass(slots=True, kw_only=True)
class FakeCompiler:
    """`lowered` maps a candidate to the digest of its lowered program; candidates of one digest are one program."""

    fail: Callable[[Candidate], Rejection | None] = lambda candidate: None
    lowered: Callable[[Candidate], str] = lambda candidate: candidate.digest
    weight_bytes: int = 1 << 30
    asked: list[str] = field(default_factory=list)

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        if known is not None and known(self.lowered(candidate)):
            return None
        self.asked.append(candidate.digest)
        rejection = self.fail(candidate)
        if rejection is not None:
            return rejection
        layout = candidate.layout
        waste = 1.05 if layout.size("data") >= layout.size("tensor") else 1.3
        waste -= 0.02 * (layout.option("blocks") == "1024") + 0.01 * bool(candidate.compiler_options)
        program = Program(
            devices=layout.devices,
            schedule=schedule(layout, waste),
            memory=Memory(argument_bytes=argument_bytes(layout, self.weight_bytes), output_bytes=0, temp_bytes=1 << 20),
        )
        return Compiled(
            program=program,
            lowered_digest=self.lowered(candidate),
            arguments=(ArgumentSharding(path="x", shape=(8,), dtype="bfloat16", spec=(("data",),)),),
            compile_s=0.0,
        )
