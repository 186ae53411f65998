"""Wan layouts of every kind, and a user's own workload: the screen against the full lowering and the compiler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import pytest

from adapters.jax.compile import compile_candidate
from adapters.jax.screen.facts import screened
from adapters.jax.screen.reading import read
from adapters.jax.screen.screening import screen
from adapters.jax.screen.shardy import is_manual, partition
from adapters.jax.step import JaxWorkload
from adapters.jax.topologies import auto_mesh
from adapters.models.wan.config import PRESETS, parse_shape
from adapters.models.wan.workload import WanWorkload
from examples.block import workload as block
from tests.adapters.jax.screen.programs import collectives, kernels
from tuner.calibration.calibration import calibration
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.ports import Compiled, Screened
from tuner.program.program import Collective, Compute, ComputeKind, Program
from tuner.screening.bounds import lower_bound
from tuner.screening.estimate import estimate
from tuner.slices.names import parse_slice
from tuner.timeline.timeline import predict

SLICE, KNOWN = parse_slice("v5e-2x4"), calibration("v5e")
LAYOUTS = {
    "guidance and ulysses": ({"cfg": 2, "ulysses": 4}, "replicated"),
    "ring": ({"ring": 8}, "ring"),
    "guidance and gathered keys": ({"cfg": 2, "context": 4}, "cfg"),
    "gathered keys, ulysses and tensor": ({"context": 2, "ulysses": 2, "tensor": 2}, "ulysses"),
    "gathered keys and tensor": ({"context": 4, "tensor": 2}, "context"),
    "guidance, ring and ulysses": ({"cfg": 2, "ring": 2, "ulysses": 2}, "all"),
    "guidance and tensor": ({"cfg": 2, "tensor": 4}, "cfg"),
}


def wan(model: str = "wan2.1-t2v-1.3b") -> WanWorkload:
    """Two layers of the model on a short video; what changes with their number are trip counts."""
    preset = PRESETS[model]
    short = replace(preset, config=replace(preset.config, layers=2))
    return WanWorkload(model=model, preset=short, shape=parse_shape("480x272x9"))


def candidate(workload: WanWorkload, kind: str) -> Candidate:
    sizes, weights = LAYOUTS[kind]
    axes = {dimension.name: 1 for dimension in workload.space.dimensions} | sizes
    return Candidate(layout=Layout.of(axes, workload.space.defaults() | {"weights": weights}))


def found(workload: JaxWorkload, asked: Candidate) -> Screened:
    outcome = screen(workload, asked)
    assert isinstance(outcome, Screened), outcome
    return outcome


def flops(program: Program, *kinds: ComputeKind) -> float:
    return sum(n.flops * times for n, times in program.walk() if isinstance(n, Compute) and n.kind in kinds)


@pytest.mark.parametrize(
    ("kind", "model"),
    [(kind, "wan2.1-t2v-1.3b") for kind in LAYOUTS]
    + [("guidance and ulysses", "wan2.1-i2v-14b"), ("ring", "wan2.1-i2v-14b")],
)
def test_without_kernels_it_is_the_same_program(kind: str, model: str) -> None:
    workload = wan(model)
    asked = candidate(workload, kind)
    quick = found(workload, asked)
    step = workload.step(asked.layout, auto_mesh(jax.devices()[:8], asked.layout), kernels=True)
    module = step.lower().compiler_ir("stablehlo")
    assert is_manual(module)
    partition(module)
    whole = screened(read(module), devices=8, digest="")
    assert quick.program.memory == whole.program.memory
    assert quick.least_bytes == whole.least_bytes
    assert collectives(quick) == collectives(whole)
    assert flops(quick.program, ComputeKind.MATMUL) == flops(whole.program, ComputeKind.MATMUL)
    calls = [n for n, _ in whole.program.walk() if isinstance(n, Compute) and n.kind is ComputeKind.KERNEL]
    assert len(calls) == len(kernels(quick)) > 0


def sent(program: Program) -> Any:
    """Bytes of each kind over each set of groups; the compiler joins small ones, and turns pairs of a ring around."""
    bytes_: Counter[Any] = Counter()
    for node, times in program.walk():
        if isinstance(node, Collective):
            key = (node.kind, frozenset(map(frozenset, node.groups)))
            bytes_[*key, "operand"] += times * node.operand_bytes
            bytes_[*key, "result"] += times * node.result_bytes
    return bytes_


@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["guidance, ring and ulysses", "gathered keys and tensor"])
def test_the_compiler_makes_of_it_what_the_screen_says(kind: str) -> None:
    workload = wan()
    asked = candidate(workload, kind)
    quick = found(workload, asked)
    compiled, _ = compile_candidate(workload, SLICE, asked, lambda _: False)
    assert isinstance(compiled, Compiled), compiled
    program = compiled.program
    assert sent(quick.program) == sent(program)
    assert [(k.heads, k.kv_len, k.head_dim) for k in kernels(quick)] == [
        (node.kernel.heads, node.kernel.kv_len, node.kernel.head_dim)
        for node, _ in program.walk()
        if isinstance(node, Compute) and node.kernel is not None
    ]
    padded = flops(program, ComputeKind.KERNEL)
    assert flops(quick.program, ComputeKind.KERNEL) <= padded <= 1.2 * flops(quick.program, ComputeKind.KERNEL)
    # The compiler multiplies matrices by vectors without the matrix unit.
    assert flops(program, ComputeKind.MATMUL) == pytest.approx(flops(quick.program, ComputeKind.MATMUL), rel=2e-3)
    assert program.memory is not None
    assert quick.program.memory is not None
    assert quick.program.memory.total_bytes <= program.memory.total_bytes
    audit(quick, compiled, asked.layout)


@pytest.mark.compiler
def test_a_program_that_the_compiler_partitions_is_bounded_too() -> None:
    asked = Candidate(layout=Layout.of({"data": 2, "tensor": 4}, block.space.defaults()))
    quick = found(block, asked)
    compiled, _ = compile_candidate(block, SLICE, asked, lambda _: False)
    assert isinstance(compiled, Compiled), compiled
    audit(quick, compiled, asked.layout)


def audit(quick: Screened, compiled: Compiled, layout: Layout) -> None:
    """The bound is below the prediction, and the estimate near it."""
    bound = lower_bound(quick, SLICE, KNOWN)
    cycles = sum((n.cycles or 0) * times for n, times in compiled.program.walk() if isinstance(n, Compute))
    at_peak = flops(quick.program, ComputeKind.MATMUL) / SLICE.generation.peak_flops
    assert at_peak <= cycles / SLICE.generation.clock_hz
    orders = (tuple(range(8)), (0, 1, 3, 2, 4, 5, 7, 6), (0, 2, 4, 6, 7, 5, 3, 1))
    steps = [predict(compiled.program, Placement(devices=o), SLICE, layout, KNOWN).step_s for o in orders]
    assert 0 < bound.step_s <= min(steps)
    assert estimate(quick, SLICE, KNOWN) == pytest.approx(min(steps), rel=1.0)
