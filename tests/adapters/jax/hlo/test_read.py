from __future__ import annotations

import math

import pytest

from adapters.jax.hlo.read import merged, read_program
from tests.adapters.jax.hlo.fixtures import VERSIONS, collectives, facts, names, program, text, total
from tuner.program.program import (
    Collective,
    CollectiveKind,
    Compute,
    ComputeKind,
    Done,
    Loop,
    Memory,
    Node,
    Start,
)

ROWS = tuple(tuple(range(4 * row, 4 * row + 4)) for row in range(4))
COLUMNS = tuple(tuple(range(column, 16, 4)) for column in range(4))
MIB = 1 << 20

pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.mark.parametrize(
    ("name", "kind", "groups", "operand", "result", "strategy"),
    [
        ("all_reduce", CollectiveKind.ALL_REDUCE, ROWS, 4 * MIB, 4 * MIB, "UniDirection1DRing"),
        ("all_reduce_outer", CollectiveKind.ALL_REDUCE, COLUMNS, 4 * MIB, 4 * MIB, "UniDirection1DRing"),
        ("all_gather", CollectiveKind.ALL_GATHER, ROWS, 4 * MIB, 16 * MIB, "1DAllGatherNonMajorDim"),
        ("reduce_scatter", CollectiveKind.REDUCE_SCATTER, ROWS, 4 * MIB, 1 * MIB, "StrategyRing"),
        ("all_to_all", CollectiveKind.ALL_TO_ALL, ROWS, 4 * MIB, 4 * MIB, "AllToAllEmitter"),
    ],
)
def test_synchronous_collectives(
    version: str,
    name: str,
    kind: CollectiveKind,
    groups: tuple[tuple[int, ...], ...],
    operand: int,
    result: int,
    strategy: str,
) -> None:
    ((found, times),) = collectives(program(version, name))
    assert (found.kind, found.groups, times) == (kind, groups, 1)
    assert (found.operand_bytes, found.result_bytes) == (operand, result)
    assert not found.asynchronous
    assert found.strategy == strategy
    assert found.written == ""


def test_a_permute_is_asynchronous_where_chips_reach_each_other(version: str) -> None:
    nodes = program(version, "permute").schedule
    assert isinstance(nodes[0], Start)
    assert nodes[1] == Done(name=nodes[0].collective.name)
    permute = nodes[0].collective
    assert permute.asynchronous
    assert permute.operand_bytes == permute.result_bytes == 4 * MIB
    assert permute.pairs == tuple((d, d - d % 4 + (d + 1) % 4) for d in range(16))


def test_a_permute_that_is_routed_is_synchronous(version: str) -> None:
    ((permute, _),) = collectives(program(version, "routed_permute"))
    assert not permute.asynchronous
    assert permute.pairs == tuple((d, d - d % 8 + (d + 3) % 8) for d in range(64))


def test_a_ring_permutes_under_its_products(version: str) -> None:
    (loop,) = (node for node in program(version, "ring").schedule if isinstance(node, Loop))
    order = [type(node).__name__ if not isinstance(node, Compute) else str(node.kind) for node in loop.body]
    assert order == ["copy", "Start", "matmul", "Done"]
    ((permute, times),) = collectives(program(version, "ring"))
    assert (times, permute.operand_bytes) == (4, 2048 * 1024 * 2)


def test_asynchronous_collective_fusion_counts_once(version: str) -> None:
    assert text(version, "overlapped_gather").count(" all-gather(") == 3
    nodes = program(version, "overlapped_gather").schedule
    shape = [node.kind if isinstance(node, Compute) else type(node) for node in nodes]
    assert shape == [ComputeKind.COPY, Start, ComputeKind.MATMUL, Done, ComputeKind.MATMUL]
    ((gather, _),) = collectives(program(version, "overlapped_gather"))
    assert gather.asynchronous
    assert gather.groups == ROWS
    assert (gather.operand_bytes, gather.result_bytes) == (32 * MIB, 128 * MIB)
    # The product under which it runs is not charged with the payload of the gather, which passes through its fusion.
    product = nodes[2]
    assert isinstance(product, Compute)
    assert product.bytes + product.vmem_bytes <= 2 * (1024 * 4096 + 4096 * 16384 + 1024 * 16384)


def test_an_all_to_all_that_the_flag_makes_asynchronous(version: str) -> None:
    nodes = program(version, "overlapped_all_to_all").schedule
    events = [node.kind if isinstance(node, Compute) else type(node) for node in nodes]
    begin, end = events.index(Start), events.index(Done)
    assert ComputeKind.MATMUL in events[begin:end]
    ((exchange, _),) = collectives(program(version, "overlapped_all_to_all"))
    assert exchange.kind is CollectiveKind.ALL_TO_ALL
    assert exchange.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert exchange.operand_bytes == exchange.result_bytes == 12 * 2048 * 128 * 2


def test_gathers_of_a_scan_of_sharded_layers(version: str) -> None:
    found = collectives(program(version, "gathered_layers"))
    assert [(gather.kind, times) for gather, times in found] == [(CollectiveKind.ALL_GATHER, 6)] * 2
    received = sum(times * gather.received_bytes for gather, times in found)
    assert received == 6 * 2 * (2048 * 8192 * 2) * 7 / 8


def test_windowed_products_receive_what_their_gather_would(version: str) -> None:
    found = collectives(program(version, "windowed_layers"))
    assert {permute.kind for permute, _ in found} == {CollectiveKind.COLLECTIVE_PERMUTE}
    shard = 2048 * 8192 * 2 // 8
    received = sum(times * permute.received_bytes for permute, times in found)
    gathered = 6 * 2 * 7 * shard
    assert gathered <= received <= gathered * 10 / 7  # both directions, with a last turn that is not needed


def test_an_uneven_reduce_scatter_is_padded_and_fixed_up(version: str) -> None:
    (scatter, _), (fix, _) = collectives(program(version, "uneven_reduce_scatter"))
    assert scatter.kind is CollectiveKind.REDUCE_SCATTER
    assert (scatter.operand_bytes, scatter.result_bytes) == (65600 * 256, 16400 * 256)
    assert scatter.groups == ROWS
    assert scatter.strategy == "StrategyRing"
    assert fix.kind is CollectiveKind.COLLECTIVE_PERMUTE
    assert fix.operand_bytes == 56 * 256  # 54 rows in tiles of 8


def test_the_opcode_that_was_written_is_kept_where_it_differs(version: str) -> None:
    ((reduce, _),) = collectives(program(version, "whole_slice_gather"))
    assert reduce.kind is CollectiveKind.ALL_REDUCE
    assert reduce.group_size == 64
    assert reduce.operand_bytes == 64 * 1024 * 256
    assert reduce.strategy == "UniDirectionNDRing"
    # jax 0.10's compiler leaves no name of the primitive on the instruction.
    assert reduce.written == ("all-gather" if "all_gather" in text(version, "whole_slice_gather") else "")


def test_a_sum_over_slices(version: str) -> None:
    scatter, transfer, gather = (found for found, _ in collectives(program(version, "multislice")))
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (scatter.kind, scatter.groups) == (CollectiveKind.REDUCE_SCATTER, halves)
    assert (gather.kind, gather.groups) == (CollectiveKind.ALL_GATHER, halves)
    assert (transfer.kind, transfer.strategy) == (CollectiveKind.DCN, "ALL_REDUCE")
    assert transfer.groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert transfer.operand_bytes == transfer.result_bytes == 1 * MIB
    assert transfer.asynchronous


def test_an_attention_layer(version: str) -> None:
    found = program(version, "attention_stack")
    ((kernel, times),) = ((n, t) for n, t in found.walk() if isinstance(n, Compute) and n.kind is ComputeKind.KERNEL)
    assert times == 4
    assert kernel.kernel is not None
    sizes = kernel.kernel
    assert (sizes.heads, sizes.q_len, sizes.kv_len, sizes.head_dim) == (2, 4096, 4096, 128)
    assert sizes.blocks == (512, 1024, 512)
    assert kernel.flops == 4 * 2 * 4096 * 4096 * 128
    kinds = [collective.kind for collective, times in collectives(found) if times == 4]
    assert kinds.count(CollectiveKind.ALL_TO_ALL) == 4
    assert kinds.count(CollectiveKind.ALL_REDUCE) == 2
    # Projections, output and feed-forward of a layer of width 1024 on 2048 rows, heads and hidden units halved.
    assert total(found, "flops", ComputeKind.MATMUL) == 4 * 2 * 2048 * 1024 * (3 * 512 + 512 + 2 * 2048)


def test_a_copy_that_the_schedule_waits_for_counts_once(version: str) -> None:
    last = program(version, "layers_6_scan").schedule[-1]  # the result leaves on-chip memory
    assert isinstance(last, Compute)
    assert (last.kind, last.bytes, last.vmem_bytes) == (ComputeKind.COPY, 8 * MIB, 8 * MIB)


def test_a_copy_under_other_work_costs_nothing(version: str) -> None:
    assert " slice-start(" in text(version, "layers_1") or " copy-start(" in text(version, "layers_1")
    kinds = {node.kind for node, _ in program(version, "layers_1").walk() if isinstance(node, Compute)}
    assert kinds == {ComputeKind.MATMUL, ComputeKind.MEMORY}


def test_a_layer_of_a_stack_reads_its_own_slice_of_the_weights(version: str) -> None:
    (loop,) = (node for node in program(version, "layers_6_scan").schedule if isinstance(node, Loop))
    products = [node for node in loop.body if isinstance(node, Compute) and node.kind is ComputeKind.MATMUL]
    assert sum(node.bytes for node in products) == 2 * (2048 * 8192 * 2)


def test_flops_agree_with_the_compiler_where_nothing_loops(version: str) -> None:
    for name in ("layers_1", "layers_3_unrolled", "overlapped_gather"):
        # The compiler's figure holds the elementwise operations too.
        assert total(program(version, name), "flops") == pytest.approx(facts(version, name)["flops"], rel=0.005), name


def test_every_program_is_read_and_starts_pair_with_ends(version: str) -> None:
    def check(nodes: tuple[Node, ...]) -> None:
        running: list[str] = []
        for node in nodes:
            match node:
                case Start():
                    running.append(node.collective.name)
                case Done():
                    running.remove(node.name)
                case Loop():
                    check(node.body)
                case _:
                    pass
        assert running == []

    for name in names(version):
        found = program(version, name)
        check(found.schedule)
        for node, _ in found.walk():
            if isinstance(node, Collective) and node.groups:
                members = [member for group in node.groups for member in group]
                assert sorted(members) == list(range(found.devices)), name
            elif isinstance(node, Compute):
                assert math.isfinite(node.flops)
                assert node.bytes >= 0
                assert node.kind is not ComputeKind.SCALAR


def test_unknown_memory_is_unknown(version: str) -> None:
    assert program(version, "layers_1").memory is None
    memory = Memory(argument_bytes=1, output_bytes=2, temp_bytes=3)
    assert read_program(text(version, "layers_1"), 4, memory).memory == memory


def test_merging_keeps_totals_and_events(version: str) -> None:
    def op(name: str, kind: ComputeKind, bytes_: int, cycles: int | None) -> Compute:
        return Compute(name=name, kind=kind, flops=1.0, bytes=bytes_, vmem_bytes=5, cycles=cycles)

    nodes: list[Node] = [
        op("a", ComputeKind.MATMUL, 10, 1),
        op("b", ComputeKind.MEMORY, 20, 2),
        op("c", ComputeKind.MATMUL, 30, 3),
        op("d", ComputeKind.MATMUL, 0, 4),
        op("e", ComputeKind.MATMUL, 40, None),
        Done(name="x"),
        op("f", ComputeKind.MATMUL, 50, 5),
        op("g", ComputeKind.KERNEL, 60, None),
        op("h", ComputeKind.KERNEL, 60, None),
    ]
    out = merged(nodes)
    assert [getattr(node, "name", "") for node in out] == ["a and 1 more", "b", "d", "e", "x", "f", "g", "h"]
    first = out[0]
    assert isinstance(first, Compute)
    assert (first.bytes, first.vmem_bytes, first.cycles, first.flops) == (40, 10, 4, 2.0)
