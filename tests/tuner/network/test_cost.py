"""Loads and times with known answers: ring and exchange algebra, and published measurements."""

from dataclasses import replace

import pytest

from tuner.calibration.calibration import Calibration, calibration
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded, Network
from tuner.program.program import Collective, CollectiveKind
from tuner.slices.slice import Slice

S = 1 << 26
EXACT = Calibration(generation="v5e", link_bytes_per_s=1.0 * S, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)


def v5e(x, y, wrap=(False, False)):
    return Slice(generation_name="v5e", shape=(x, y), wrap=wrap)


def exact(slice_):
    return Network(slice_, replace(EXACT, generation=slice_.generation_name))


def tiles(slice_, width, height, stride=1):
    """Groups of width x height chips at `stride`, covering the slice, in row-major order."""
    nx, ny = slice_.shape
    step_x, step_y = (stride if width > 1 else 1), (stride if height > 1 else 1)
    return tuple(
        tuple(slice_.device((x0 + px + i * step_x, y0 + py + j * step_y)) for j in range(height) for i in range(width))
        for x0 in range(0, nx, width * step_x)
        for y0 in range(0, ny, height * step_y)
        for px in range(step_x)
        for py in range(step_y)
    )


def collective(kind, groups, bytes_=S):
    scale = {CollectiveKind.ALL_GATHER: len(groups[0]), CollectiveKind.REDUCE_SCATTER: 1}.get(kind, 1)
    return Collective(name="c", kind=kind, operand_bytes=bytes_, result_bytes=bytes_ * scale, groups=groups)


@pytest.mark.parametrize(
    ("kind", "shape", "block", "stride", "expected"),
    [
        (CollectiveKind.ALL_REDUCE, (4, 4), (4, 1), 1, 1.5),
        (CollectiveKind.ALL_REDUCE, (4, 4), (1, 4), 1, 1.5),
        (CollectiveKind.ALL_REDUCE, (4, 4), (2, 2), 1, 0.75),
        (CollectiveKind.ALL_REDUCE, (4, 4), (2, 4), 1, 0.875),
        (CollectiveKind.ALL_REDUCE, (4, 4), (4, 2), 1, 0.875),
        (CollectiveKind.ALL_REDUCE, (8, 8), (8, 1), 1, 1.75),
        (CollectiveKind.ALL_REDUCE, (4, 4), (2, 1), 2, 2.0),
        (CollectiveKind.ALL_REDUCE, (4, 4), (4, 4), 1, 0.9375),
        (CollectiveKind.REDUCE_SCATTER, (4, 4), (4, 1), 1, 0.75),
        (CollectiveKind.ALL_TO_ALL, (4, 4), (4, 1), 1, 1.0),
        (CollectiveKind.ALL_TO_ALL, (4, 4), (2, 2), 1, 0.5),
        (CollectiveKind.ALL_TO_ALL, (4, 4), (2, 4), 1, 1.0),
        (CollectiveKind.ALL_TO_ALL, (8, 8), (8, 1), 1, 2.0),
    ],
)
def test_busiest_link_in_units_of_operand_over_rate(kind, shape, block, stride, expected):
    slice_ = replace(v5e(*shape), generation_name="v6e")  # rings as on v5e, without its limited routing
    cost = exact(slice_).cost(collective(kind, tiles(slice_, *block, stride)), range(slice_.num_devices))
    assert cost.time_s == pytest.approx(expected)
    assert cost.busiest_bytes == pytest.approx(expected * S)


def test_all_reduce_is_twice_an_all_gather_of_the_same_bytes():
    slice_ = v5e(4, 4)
    network = Network(slice_, EXACT)
    groups = tiles(slice_, 4, 1)
    reduce = network.cost(collective(CollectiveKind.ALL_REDUCE, groups), range(16))
    gather = network.cost(collective(CollectiveKind.ALL_GATHER, groups, S // 4), range(16))
    assert reduce.time_s == pytest.approx(2 * gather.time_s)


def test_a_wrapped_line_halves_the_load():
    open_, closed = v5e(16, 16), v5e(16, 16, (True, True))
    op = collective(CollectiveKind.ALL_REDUCE, tiles(open_, 16, 1))
    assert Network(open_, EXACT).cost(op, range(256)).time_s == pytest.approx(2 * 15 / 16)
    assert Network(closed, EXACT).cost(op, range(256)).time_s == pytest.approx(15 / 16)


def test_an_exchange_on_a_closed_ring_uses_both_ways():
    closed = replace(v5e(16, 16, (True, True)), generation_name="v6e")
    op = collective(CollectiveKind.ALL_TO_ALL, tiles(closed, 16, 1))
    # g/8 of the operand: scaling book, all-to-all on a wrapped axis is a quarter of an all-gather.
    assert exact(closed).cost(op, range(256)).time_s == pytest.approx(16 / 8)


def test_one_irregular_group_makes_all_fall_back_to_the_listed_order():
    slice_ = v5e(4, 4)
    network = Network(slice_, EXACT)
    good = tiles(slice_, 2, 2)
    swapped = list(range(16))
    swapped[good[0][3]], swapped[good[1][3]] = swapped[good[1][3]], swapped[good[0][3]]
    op = collective(CollectiveKind.ALL_REDUCE, good)
    assert network.cost(op, range(16)).time_s == pytest.approx(0.75)
    # Rows of a block are listed 00, 10, 01, 11: as a ring that has two diagonal hops, in every group.
    untouched = network.cost(op, swapped).loads.reshape(4, 4, 4)
    assert untouched.max() > 0.75 * S
    assert network.cost(op, swapped).time_s >= 1.5


def test_latency_counts_steps_and_hops():
    slice_ = v5e(4, 4)
    network = Network(slice_, Calibration(generation="v5e", link_bytes_per_s=4.5e10, hop_s=1e-6, launch_s=4e-6))
    pairs = tuple((k, (k + 1) % 16) for k in range(16))
    permute = Collective(name="p", kind=CollectiveKind.COLLECTIVE_PERMUTE, operand_bytes=1, result_bytes=1, pairs=pairs)
    # 15 -> 0 is six hops.
    assert network.cost(permute, range(16)).time_s == pytest.approx(10e-6, rel=1e-3)
    small = network.cost(collective(CollectiveKind.ALL_REDUCE, tiles(slice_, 2, 2), 1024), range(16))
    assert small.time_s == pytest.approx(4e-6 + 3e-6, rel=1e-2)


def test_a_degraded_link_slows_what_crosses_it():
    slice_ = v5e(4, 4)
    op = collective(CollectiveKind.ALL_TO_ALL, tiles(slice_, 2, 2))
    half = Network(slice_, EXACT, [Degraded.parse("0,0:1,0=0.5")]).cost(op, range(16))
    assert half.time_s == pytest.approx(1.0)
    assert Network(slice_, EXACT, [Degraded.parse("1,0:2,0=0")]).cost(op, range(16)).time_s == pytest.approx(0.5)
    missing = Network(slice_, EXACT, [Degraded.parse("0,0:1,0=0")]).cost(op, range(16))
    assert missing.time_s == pytest.approx(1.0), "all goes over the three links that are left"


@pytest.mark.parametrize("text", ["0,0:1,0", "a:b=1", "0,0=1", "0,0:1,0=2"])
def test_a_malformed_link_is_refused(text):
    with pytest.raises(InvalidValue, match=r"0,0:1,0=0.5|0 to 1"):
        Degraded.parse(text)


def test_a_link_that_does_not_exist_is_refused():
    with pytest.raises(InvalidValue, match="no link between"):
        Network(v5e(4, 4), calibration("v5e"), [Degraded.parse("0,0:2,0=0.5")])


def test_core_to_core_traffic_takes_the_fast_link():
    slice_ = Slice(generation_name="v7x", shape=(2, 2, 1), wrap=(False,) * 3)
    network = Network(slice_, calibration("v7x"))
    cores = collective(CollectiveKind.ALL_TO_ALL, tuple((2 * c, 2 * c + 1) for c in range(4)))
    chips = collective(CollectiveKind.ALL_TO_ALL, ((0, 2), (1, 3), (4, 6), (5, 7)))
    fast, slow = network.cost(cores, range(8)), network.cost(chips, range(8))
    assert "core" in network.fabric.link_name(fast.busiest_link)
    assert slow.time_s > 4 * fast.time_s
