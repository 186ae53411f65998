"""Missing links and chips."""

import numpy as np
import pytest

from tuner.calibration.calibration import CALIBRATIONS
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.network.bounds import cut_bound_s
from tuner.network.cost import Degraded, Network
from tuner.placements.ranking import rank
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice


def network(name, *links, wrap=None):
    slice_ = parse_slice(name, wrap=wrap)
    return Network(slice_, CALIBRATIONS[slice_.generation_name], [Degraded.parse(link) for link in links])


def permute(*pairs, bytes_=1 << 24):
    return Collective(
        name="p", kind=CollectiveKind.COLLECTIVE_PERMUTE, operand_bytes=bytes_, result_bytes=bytes_, pairs=pairs
    )


def exchange(n, kind=CollectiveKind.ALL_TO_ALL):
    return Collective(name="a", kind=kind, operand_bytes=1 << 24, result_bytes=1 << 24, groups=(tuple(range(n)),))


def used(net, op):
    loads = net.cost(op, tuple(range(net.slice_.num_devices))).loads
    return {net.fabric.link_name(link): loads[link] / op.operand_bytes for link in np.flatnonzero(loads).tolist()}


def test_traffic_goes_around_a_missing_link():
    whole, damaged = network("v5e-2x4"), network("v5e-2x4", "0,0:1,0=0")
    assert used(whole, permute((0, 1))) == {"0,0->1,0": 1}
    assert used(damaged, permute((0, 1))) == {"0,0->0,1": 1, "0,1->1,1": 1, "1,1->1,0": 1}
    assert used(damaged, permute((1, 0))) == {"1,0->1,1": 1, "1,1->0,1": 1, "0,1->0,0": 1}
    assert used(damaged, permute((2, 3))) == used(whole, permute((2, 3)))
    assert damaged.fabric.distance(np.array([0, 0]), np.array([1, 2])).tolist() == [3, 1]


def test_a_closed_axis_is_gone_around_the_other_way():
    net = network("v6e-1x8", "0,7:0,0=0", wrap=(False, True))
    assert used(net, permute((7, 0))) == {f"0,{y}->0,{y - 1}": 1 for y in range(1, 8)}


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("v5e-4x4", ["1,1:2,1=0", "1,1:1,2=0"]),
        ("v5p-2x2x4", ["0,0,1:0,0,2=0"]),
        ("v7x-2x2x1", ["0,0,0:1,0,0=0"]),
        ("v6e-16x16", ["3,4:3,5=0", "0,0:15,0=0"]),
        ("v5p-4x4x8_twisted", ["3,0,0:0,0,4=0", "1,1,1:1,1,2=0"]),
    ],
)
def test_every_transfer_arrives_and_none_crosses_a_missing_link(name, links):
    net = network(name, *links)
    fabric, slice_ = net.fabric, net.slice_
    rng = np.random.default_rng(0)
    source, target = rng.integers(slice_.num_devices, size=(2, 400, 1))
    ends = np.array([[slice_.device(end) for end in fabric.link_ends(link)] for link in range(fabric.num_links)])
    for order in fabric.orders:
        loads = fabric.loads(source, target, [order])[:, 0]
        assert not loads[:, ~fabric.exists].any()
        np.testing.assert_allclose(loads.sum(axis=1), fabric.distance(source, target)[:, 0])
        chips = loads.copy()
        chips[:, fabric.is_core_link()] = 0
        balance = np.zeros((len(loads), slice_.num_devices))
        np.add.at(balance.T, ends[:, 0], chips.T)
        np.subtract.at(balance.T, ends[:, 1], chips.T)
        expected, rows = np.zeros_like(balance), np.arange(len(loads))
        expected[rows, source[:, 0] // slice_.cores * slice_.cores] += 1
        expected[rows, target[:, 0] // slice_.cores * slice_.cores] -= 1
        np.testing.assert_allclose(balance, expected, atol=1e-9)


@pytest.mark.parametrize("name", ["v5e-4x4", "v4-2x2x4"])
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE])
def test_a_missing_link_costs_time_but_not_all_of_it(name, kind):
    first = "0,0:1,0" if name == "v5e-4x4" else "0,0,0:1,0,0"
    whole, damaged = network(name), network(name, f"{first}=0")
    op, devices = exchange(16, kind), tuple(range(16))
    assert whole.cost(op, devices).time_s < damaged.cost(op, devices).time_s < np.inf
    assert cut_bound_s(damaged, op, devices) <= damaged.cost(op, devices).time_s


def test_a_chip_that_is_cut_off_takes_infinitely_long():
    net = network("v5e-2x4", "0,0:1,0=0", "0,0:0,1=0")
    assert net.cost(permute((0, 1)), tuple(range(8))).time_s == np.inf
    assert net.cost(permute((2, 3)), tuple(range(8))).time_s < np.inf


def test_limited_routing_has_no_way_around():
    net = network("v5e-4x8", "0,0:1,0=0")
    assert net.cost(permute((0, 1)), tuple(range(32))).time_s == np.inf


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_placements_avoid_a_bad_link(rate):
    slice_ = Slice(generation_name="v5e", shape=(2, 4), wrap=(False, False))
    pairs = tuple(pair for k in range(0, 8, 2) for pair in ((k, k + 1), (k + 1, k)))
    program = Program(devices=8, schedule=(permute(*pairs),))
    bad = Degraded(ends=((0, 0), (1, 0)), rate=rate)
    layout, calibration = Layout.of({"b": 4, "a": 2}), CALIBRATIONS["v5e"]
    whole = rank(program, slice_, layout, calibration).best[0]
    damaged = rank(program, slice_, layout, calibration, degraded=[bad])
    assert damaged.best[0].step_s == pytest.approx(whole.step_s)
    assert damaged.worst.step_s > 1.5 * whole.step_s


def test_a_slice_must_be_whole():
    with pytest.raises(InvalidValue, match=r"chip 1,0 .* a slice must be whole"):
        Degraded.parse("1,0=0")


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("v5e-2x4", ((0, 1, 2, 3), (4, 5), (6,), (7,))),  # all have an order of the compiler's own
        ("v5p-2x2x4", ((0, 1, 5, 4), (2, 3), *((k,) for k in range(6, 16)))),  # listed order
    ],
)
def test_groups_of_several_sizes_take_what_the_slowest_takes(name, groups):
    net = network(name)
    mixed = Collective(
        name="m", kind=CollectiveKind.ALL_REDUCE, operand_bytes=1 << 24, result_bytes=1 << 24, groups=groups
    )
    parts = [
        Collective(name="m", kind=CollectiveKind.ALL_REDUCE, operand_bytes=1 << 24, result_bytes=1 << 24, groups=(g,))
        for g in groups[:2]
    ]
    devices = tuple(range(net.slice_.num_devices))
    costs = [net.cost(part, devices) for part in parts]
    whole = net.cost(mixed, devices)
    np.testing.assert_allclose(whole.loads, sum(cost.loads for cost in costs))
    assert whole.time_s == pytest.approx(max(cost.time_s for cost in costs))
    assert cut_bound_s(net, mixed, devices) == pytest.approx(max(cut_bound_s(net, p, devices) for p in parts))


def test_a_program_with_groups_of_several_sizes_is_ranked():
    slice_ = parse_slice("v5e-2x4")
    op = Collective(
        name="m",
        kind=CollectiveKind.ALL_REDUCE,
        operand_bytes=1 << 24,
        result_bytes=1 << 24,
        groups=((0, 1, 2, 3), (4, 5), (6, 7)),
    )
    program = Program(devices=8, schedule=(op,))
    found = rank(program, slice_, Layout.of({"all": 8}), CALIBRATIONS["v5e"])
    assert 0 < found.best[0].step_s <= found.default.step_s
