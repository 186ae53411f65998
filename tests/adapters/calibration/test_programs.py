"""Benchmarks as the TPU compiler makes them: what was meant, as often as was meant, and nothing beside it."""

from __future__ import annotations

import pytest

from tuner.calibration.suite import Benchmark, suite
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Loop, Program, Start
from tuner.slices.names import parse_slice

SLICE = parse_slice("v5e-2x4")
REPEATS = 40


def some() -> list[Benchmark]:
    """The largest of each group of benchmarks that differ in size only."""
    return list({each.name.rsplit(",", 1)[0]: each for each in suite(SLICE)}.values())


def kept(program: Program) -> list[Compute | Collective]:
    """Operations of the loop, once for each repetition."""
    (loop,) = [node for node in program.schedule if isinstance(node, Loop)]
    assert loop.trips == REPEATS // 2
    nodes = [node.collective if isinstance(node, Start) else node for node in loop.body]
    return [node for node in nodes if isinstance(node, Compute | Collective)]


@pytest.mark.compiler
@pytest.mark.parametrize("benchmark_", some(), ids=lambda benchmark: benchmark.name)
def test_what_is_timed_is_what_was_meant(benchmark_: Benchmark) -> None:
    from adapters.calibration.timing import compiled
    from adapters.jax.topologies import devices_in_order, topology

    _, program = compiled(benchmark_, SLICE, devices_in_order(SLICE, topology(SLICE).devices), REPEATS)
    nodes, meant = kept(program), benchmark_.node
    if isinstance(meant, Collective):
        # A scattered sum is padded where its parts are odd, and small permutes put them right.
        found = [node for node in nodes if isinstance(node, Collective) and node.kind is meant.kind]
        assert len(found) == 2
        assert {len(node.groups) for node in found} == {len(meant.groups)}
        assert {len(node.pairs) for node in found} == {len(meant.pairs)}
        assert all(meant.operand_bytes <= node.operand_bytes < 1.01 * meant.operand_bytes for node in found)
        if meant.kind is CollectiveKind.COLLECTIVE_PERMUTE:
            assert {node.pairs for node in found} == {meant.pairs}
        return
    computes = [node for node in nodes if isinstance(node, Compute)]
    match meant.kind:
        case ComputeKind.MATMUL:
            products = [node for node in computes if node.kind is ComputeKind.MATMUL]
            assert sum(node.flops for node in products) == 2 * meant.flops
            assert all(node.cycles for node in products)
        case ComputeKind.MEMORY:
            assert sum(node.bytes for node in computes) == 2 * meant.bytes
        case _:
            kernels = [node.kernel for node in computes if node.kernel is not None]
            assert len(kernels) == 2
            assert meant.kernel is not None
            assert {kernel.blocks for kernel in kernels} == {meant.kernel.blocks}
            assert {(kernel.heads, kernel.q_len, kernel.kv_len) for kernel in kernels} == {(4, 8192, 8192)}
