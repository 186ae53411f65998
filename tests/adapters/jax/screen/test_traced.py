"""A traced step is read as the same program as its lowered form."""

from __future__ import annotations

from collections import Counter

import jax
import pytest

from adapters.jax.screen.facts import screened
from adapters.jax.screen.primitives import CannotRead
from adapters.jax.screen.reading import read as read_lowered
from adapters.jax.screen.shardy import partition
from adapters.jax.screen.traced import read
from adapters.jax.step import JaxWorkload
from adapters.jax.topologies import auto_mesh
from examples.block import workload as block
from tests.adapters.jax.screen.test_wan import LAYOUTS, candidate, wan
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Layout
from tuner.layouts.space import enumerate_layouts
from tuner.ports import Screened
from tuner.program.program import Collective, Compute
from tuner.screening.estimate import estimate
from tuner.slices.names import parse_slice

SLICE, KNOWN = parse_slice("v5e-2x4"), calibration("v5e")


def both(workload: JaxWorkload, layout: Layout) -> tuple[Screened, Screened]:
    step = workload.step(layout, auto_mesh(jax.devices()[:8], layout), kernels=False)
    traced = step.jitted().trace(*step.arguments)
    graph, digest = read(step, traced)
    module = traced.lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
    partition(module)
    return screened(graph, devices=8, digest=digest), screened(read_lowered(module), devices=8, digest="")


def collectives(of: Screened) -> Counter[object]:
    return Counter(
        (node.kind, node.operand_bytes, node.result_bytes, sorted(node.groups), sorted(node.pairs), times).__repr__()
        for node, times in of.program.walk()
        if isinstance(node, Collective)
    )


def flops(of: Screened) -> float:
    return sum(node.flops * times for node, times in of.program.walk() if isinstance(node, Compute))


def check(traced: Screened, lowered: Screened) -> None:
    assert collectives(traced) == collectives(lowered)
    assert flops(traced) == flops(lowered) > 0
    assert traced.program.memory == lowered.program.memory
    assert traced.least_bytes == lowered.least_bytes
    assert estimate(traced, SLICE, KNOWN) == pytest.approx(estimate(lowered, SLICE, KNOWN), rel=3e-3)


@pytest.mark.parametrize(
    ("kind", "model"),
    [(kind, "wan2.1-t2v-1.3b") for kind in LAYOUTS]
    + [("guidance and ulysses", "wan2.1-i2v-14b"), ("gathered keys and tensor", "wan2.1-i2v-14b")],
)
def test_it_says_what_the_lowered_program_says(kind: str, model: str) -> None:
    workload = wan(model)
    check(*both(workload, candidate(workload, kind).layout))


def test_programs_that_differ_have_digests_that_differ() -> None:
    workload = wan()
    layouts = [found for found in enumerate_layouts(workload.space, 8, workload.verdict) if isinstance(found, Layout)]
    chosen = [layout for layout in layouts if layout.size("cfg") == 2 and layout.size("tensor") == 1]
    lowered, traced = set(), set()
    for layout in chosen:
        step = workload.step(layout, auto_mesh(jax.devices()[:8], layout), kernels=False)
        trace = step.jitted().trace(*step.arguments)
        lowered.add(trace.lower(lowering_platforms=("tpu",)).as_text())
        traced.add(read(step, trace)[1])
        assert read(step, step.jitted().trace(*step.arguments))[1] in traced
    assert len(traced) == len(lowered) == len(chosen)


def test_a_step_that_leaves_collectives_to_shardy_is_not_read() -> None:
    layouts = enumerate_layouts(block.space, 8, block.verdict)
    layout = next(found for found in layouts if isinstance(found, Layout))
    step = block.step(layout, auto_mesh(jax.devices()[:8], layout), kernels=False)
    with pytest.raises(CannotRead):
        read(step, step.jitted().trace(*step.arguments))
