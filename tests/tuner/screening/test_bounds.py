"""The bound is never above what the model can reach, on any placement, and grows with every need."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.calibration.calibration import calibration
from tuner.network.cost import Network
from tuner.ports import Screened
from tuner.program.program import AttentionKernel, Collective, CollectiveKind, Compute, ComputeKind, Loop, Program
from tuner.screening.bounds import least, lower_bound, network_bound_s
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.timeline.compute import compute_seconds

V5E = parse_slice("v5e-2x4")
SQUARE = parse_slice("v5e-2x2")
LINE = Slice(generation_name="v5e", shape=(1, 4), wrap=(False, False))
CORES = Slice(generation_name="v7x", shape=(2, 1, 1), wrap=(False, False, False))
MIB = 1 << 20
KINDS = tuple(kind for kind in CollectiveKind if kind is not CollectiveKind.DCN)


def groups(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of flattened mesh positions that differ only along some axes."""
    found: dict[tuple[int, ...], list[int]] = {}
    for position, digits in enumerate(product(*map(range, shape))):
        key = tuple(digit for axis, digit in enumerate(digits) if axis not in axes)
        found.setdefault(key, []).append(position)
    return tuple(map(tuple, found.values()))


def collective(kind: CollectiveKind, size: int, of: tuple[tuple[int, ...], ...]) -> Collective:
    """A collective whose whole is `size` bytes on each device."""
    parts = len(of[0])
    if kind is CollectiveKind.COLLECTIVE_PERMUTE:
        pairs = tuple((a, b) for group in of for a, b in zip(group, group[1:] + group[:1], strict=True))
        return Collective(name="it", kind=kind, operand_bytes=size, result_bytes=size, pairs=pairs)
    small = {CollectiveKind.ALL_GATHER: (size // parts, size), CollectiveKind.REDUCE_SCATTER: (size, size // parts)}
    operand, result = small.get(kind, (size, size))
    return Collective(name="it", kind=kind, operand_bytes=operand, result_bytes=result, groups=of)


MESHES = {4: ((4,), (2, 2)), 8: ((8,), (2, 4), (4, 2), (2, 2, 2))}


@st.composite
def collectives(draw: st.DrawFn, devices: int) -> Collective:
    shape = draw(st.sampled_from(MESHES[devices]))
    axes = draw(st.sets(st.sampled_from(range(len(shape))), min_size=1).map(lambda s: tuple(sorted(s))))
    size = draw(st.sampled_from((1, 64, MIB, 48 * MIB))) * prod(shape)
    return collective(draw(st.sampled_from(KINDS)), size, groups(shape, axes))


def program(*nodes: Compute | Collective | Loop, devices: int = 8) -> Program:
    return Program(devices=devices, schedule=nodes)


def screened(*nodes: Compute | Collective | Loop, least_bytes: int = 0, devices: int = 8) -> Screened:
    return Screened(program=program(*nodes, devices=devices), least_bytes=least_bytes, digest="")


@pytest.mark.parametrize("slice_", [SQUARE, LINE, CORES], ids=["2x2", "1x4", "two chips of two cores"])
@settings(deadline=None, max_examples=40)
@given(sent=st.lists(collectives(4), min_size=1, max_size=3))
def test_no_placement_communicates_faster(slice_: Slice, sent: list[Collective]) -> None:
    network = Network(slice_, calibration(slice_.generation_name))
    best = min(sum(network.cost(node, order).time_s for node in sent) for order in permutations(range(4)))
    assert network_bound_s(program(*sent, devices=4), slice_, calibration(slice_.generation_name)) <= best


@settings(deadline=None, max_examples=60)
@given(node=collectives(8), order=st.permutations(range(8)), times=st.integers(1, 40))
def test_no_sampled_placement_of_eight_communicates_faster(node: Collective, order: list[int], times: int) -> None:
    cost = Network(V5E, calibration("v5e")).cost(node, order).time_s
    loop = Loop(name="layers", trips=times, body=(node,))
    bound = network_bound_s(program(loop), V5E, calibration("v5e"))
    assert bound <= times * cost
    assert bound == pytest.approx(times * network_bound_s(program(node), V5E, calibration("v5e")))


@given(node=collectives(8), factor=st.integers(1, 5))
def test_the_bound_grows_with_bytes_and_with_company(node: Collective, factor: int) -> None:
    def bound(*nodes: Collective) -> float:
        return network_bound_s(program(*nodes), V5E, calibration("v5e"))

    larger = replace(node, operand_bytes=factor * node.operand_bytes, result_bytes=factor * node.result_bytes)
    assert bound(larger) == pytest.approx(factor * bound(node))
    assert bound(node, larger) >= max(bound(node), bound(larger))


@given(node=collectives(8))
def test_a_part_of_a_sum_needs_no_more_than_the_sum(node: Collective) -> None:
    if node.kind is CollectiveKind.ALL_REDUCE:
        part = replace(node, kind=CollectiveKind.REDUCE_SCATTER, result_bytes=node.result_bytes // node.group_size)
        whole, less = (least(it, devices=8, cores=1) for it in (node, part))
        assert less.enter <= whole.enter
        assert less.leave <= whole.leave
        assert less.mean <= whole.mean


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        (CollectiveKind.ALL_GATHER, 3 / 4 / 2),  # a corner has two links, and needs three quarters
        (CollectiveKind.REDUCE_SCATTER, 3 / 4 / 2),
        (CollectiveKind.ALL_TO_ALL, 3 / 4 / 2),
        (CollectiveKind.ALL_REDUCE, 2 * 3 / 4 * 8 / 20),  # sums and their results over all twenty links
        (CollectiveKind.COLLECTIVE_PERMUTE, 1 / 2),
    ],
)
def test_known_bounds_on_two_by_four_chips(kind: CollectiveKind, shares: float) -> None:
    node = collective(kind, 64 * MIB, groups((2, 4), (1,)))
    known = calibration("v5e")
    expected = shares * 64 * MIB / known.link_bytes_per_s
    assert network_bound_s(program(node), V5E, known) == pytest.approx(expected)


def test_cores_of_one_chip_exchange_for_nothing() -> None:
    pairs = collective(CollectiveKind.ALL_REDUCE, MIB, groups((2, 2), (1,)))
    assert network_bound_s(program(pairs, devices=4), CORES, calibration("v7x")) == 0
    everyone = collective(CollectiveKind.ALL_GATHER, MIB, groups((4,), (0,)))
    assert network_bound_s(program(everyone, devices=4), CORES, calibration("v7x")) > 0


def test_one_chip_needs_no_network() -> None:
    alone = Slice(generation_name="v5e", shape=(1, 1), wrap=(False, False))
    assert lower_bound(screened(devices=1), alone, calibration("v5e")).step_s == 0


@given(
    products=st.lists(st.floats(1e9, 1e15), max_size=4),
    attention=st.tuples(st.integers(1, 40), st.integers(1, 40000), st.integers(1, 40000)),
    least_bytes=st.integers(0, 1 << 34),
    node=collectives(8),
)
def test_the_bound_is_the_largest_of_three_and_compute_adds(
    products: list[float], attention: tuple[int, int, int], least_bytes: int, node: Collective
) -> None:
    heads, q_len, kv_len = attention
    kernel = AttentionKernel(name="it", heads=heads, q_len=q_len, kv_len=kv_len, head_dim=128, blocks=(512, 512, 512))
    nodes = [Compute(name="dot", kind=ComputeKind.MATMUL, flops=flops) for flops in products]
    nodes.append(Compute(name="attention", kind=ComputeKind.KERNEL, flops=kernel.flops, kernel=kernel))
    known = calibration("v5e")
    bound = lower_bound(screened(*nodes, node, least_bytes=least_bytes), V5E, known)
    flops = sum(products) + kernel.flops
    assert bound.compute_s == pytest.approx(flops / V5E.generation.peak_flops)
    assert bound.memory_s == least_bytes / V5E.generation.hbm_bytes_per_s
    assert bound.network_s == network_bound_s(program(node), V5E, known)
    parts = {"compute": bound.compute_s, "memory": bound.memory_s, "network": bound.network_s}
    assert bound.step_s == max(parts.values()) == parts[bound.which]
    # What the model predicts for the same operations, before any compile, is never less.
    assert bound.compute_s <= sum(compute_seconds(it, V5E.generation, known) for it in nodes) * (1 + 1e-9)
