"""The estimate is above the bound, and orders what the model orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.screening.test_bounds import MIB, V5E, collective, collectives, groups, screened
from tuner.calibration.attention import best_blocks
from tuner.calibration.calibration import calibration
from tuner.network.cost import Network
from tuner.program.program import AttentionKernel, Collective, CollectiveKind, Compute, ComputeKind, Loop
from tuner.screening.bounds import lower_bound
from tuner.screening.estimate import collective_s, estimate
from tuner.slices.names import parse_slice

KNOWN = calibration("v5e")


def attention(blocks: tuple[int, int, int], kv_len: int = 8192) -> Compute:
    kernel = AttentionKernel(name="it", heads=4, q_len=8192, kv_len=kv_len, head_dim=128, blocks=blocks)
    return Compute(name="attention", kind=ComputeKind.KERNEL, flops=kernel.flops, kernel=kernel)


@given(products=st.lists(st.floats(1e9, 1e15), min_size=1, max_size=4), node=collectives(8), trips=st.integers(1, 40))
def test_never_below_the_bound(products: list[float], node: Collective, trips: int) -> None:
    body = [Compute(name="dot", kind=ComputeKind.MATMUL, flops=flops) for flops in products]
    found = screened(Loop(name="layers", trips=trips, body=(*body, attention((0, 0, 0)), node)), least_bytes=1000)
    assert estimate(found, V5E, KNOWN) >= lower_bound(found, V5E, KNOWN).step_s


def test_unknown_blocks_are_the_best_and_a_short_sequence_gets_its_own() -> None:
    unknown, worse = (estimate(screened(attention(b)), V5E, KNOWN) for b in ((0, 0, 0), (512, 512, 512)))
    best = best_blocks(8192, 8192, "v5e")[0].blocks
    assert unknown == pytest.approx(estimate(screened(attention(best)), V5E, KNOWN))
    assert unknown <= worse
    short, own = (estimate(screened(attention(b, kv_len=512)), V5E, KNOWN) for b in ((512, 2048, 512), (0, 0, 0)))
    assert short == own


def test_a_generation_without_a_table_is_estimated_too() -> None:
    found = screened(attention((512, 512, 512)))
    assert estimate(found, parse_slice("v4-2x2x2"), calibration("v4")) > 0


def test_a_permute_hides_behind_the_products_of_its_trip() -> None:
    product = Compute(name="dot", kind=ComputeKind.MATMUL, flops=1e12)
    around, inside = groups((8,), (0,)), groups((2, 4), (1,))
    permute = collective(CollectiveKind.COLLECTIVE_PERMUTE, MIB, around)
    exchange = collective(CollectiveKind.ALL_TO_ALL, MIB, inside)
    alone = estimate(screened(product), V5E, KNOWN)
    beside = estimate(screened(product, permute), V5E, KNOWN) - alone
    assert 0 < beside < 0.5 * collective_s(permute, V5E, KNOWN)
    assert estimate(screened(product, exchange), V5E, KNOWN) == alone + collective_s(exchange, V5E, KNOWN)


@pytest.mark.parametrize("kind", [k for k in CollectiveKind if k is not CollectiveKind.DCN])
@pytest.mark.parametrize("chips", [(0, 1, 2, 3), (0, 1, 3, 2)], ids=["listed", "around"])
def test_a_compact_block_costs_what_the_network_says(kind: CollectiveKind, chips: tuple[int, ...]) -> None:
    """On v5e-2x4 the chips 0 to 3 are a 2x2 block; a permute needs them listed around it."""
    node = collective(kind, 64 * MIB, groups((2, 4), (1,)))
    order = (*chips, *(4 + chip for chip in chips))
    modelled = Network(V5E, KNOWN).cost(node, order).time_s
    if kind is CollectiveKind.COLLECTIVE_PERMUTE and chips[2] == 2:
        assert collective_s(node, V5E, KNOWN) < modelled
    else:
        assert collective_s(node, V5E, KNOWN) == pytest.approx(modelled, rel=0.02)
