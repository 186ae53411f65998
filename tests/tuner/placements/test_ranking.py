"""Which placement wins: cases with known answers."""

from itertools import permutations

import numpy as np
import pytest

from tuner.calibration.calibration import Calibration, calibration
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.placements.ranking import rank, rank_with, routing_classes
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

S = 1 << 24
EXACT = Calibration(generation="v5e", link_bytes_per_s=1.0 * S, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)


def make(generation, *shape):
    return Slice(generation_name=generation, shape=shape, wrap=(False,) * len(shape))


def groups(layout, *axes):
    ids = np.arange(layout.devices).reshape(layout.shape)
    places = [layout.axis_names.index(axis) for axis in axes]
    rest = [k for k in range(len(layout.shape)) if k not in places]
    rows = ids.transpose(*rest, *places).reshape(-1, int(np.prod([layout.shape[k] for k in places])))
    return tuple(map(tuple, rows.tolist()))


def exchange(layout, *axes, bytes_=S, name="a2a"):
    return Collective(
        name=f"{name}-{'-'.join(axes)}",
        kind=CollectiveKind.ALL_TO_ALL,
        operand_bytes=bytes_,
        result_bytes=bytes_,
        groups=groups(layout, *axes),
    )


def reduce(layout, *axes, bytes_=S):
    return Collective(
        name=f"ar-{'-'.join(axes)}",
        kind=CollectiveKind.ALL_REDUCE,
        operand_bytes=bytes_,
        result_bytes=bytes_,
        groups=groups(layout, *axes),
    )


def ring_permute(layout, *axes, bytes_=S):
    pairs = tuple((a, b) for group in groups(layout, *axes) for a, b in zip(group, (*group[1:], group[0]), strict=True))
    return Collective(
        name=f"cp-{'-'.join(axes)}",
        kind=CollectiveKind.COLLECTIVE_PERMUTE,
        operand_bytes=bytes_,
        result_bytes=bytes_,
        pairs=pairs,
    )


def program(layout, *nodes):
    return Program(devices=layout.devices, schedule=nodes)


def longest_hop(slice_, devices):
    places = [slice_.coords(device) for device in devices]
    after = [*places[1:], places[0]]
    return max(sum(abs(p - q) for p, q in zip(a, b, strict=True)) for a, b in zip(places, after, strict=True))


def test_blocks_beat_rows_for_an_exchange():
    layout = Layout.of({"cfg": 4, "ulysses": 4})
    found = rank(program(layout, exchange(layout, "ulysses")), make("v5e", 4, 4), layout, EXACT)
    assert found.best[0].step_s == pytest.approx(0.5)
    assert found.best[0].placement.description.startswith("cfg:")
    assert "ulysses: 2x2 blocks" in found.best[0].placement.description
    assert found.default.step_s == pytest.approx(1.0)
    assert found.worst.step_s >= found.default.step_s


@pytest.mark.parametrize("busy", ["cfg", "ulysses"])
def test_the_busier_axis_gets_the_blocks(busy):
    layout = Layout.of({"cfg": 4, "ulysses": 4})
    idle = {"cfg": "ulysses", "ulysses": "cfg"}[busy]
    traffic = (exchange(layout, busy, bytes_=4 * S), exchange(layout, idle, bytes_=S))
    found = rank(program(layout, *traffic), make("v5e", 4, 4), layout, EXACT)
    assert f"{busy}: 2x2 blocks" in found.best[0].placement.description


def test_an_order_inside_a_rectangle_is_one_placement_where_the_compiler_reorders():
    layout = Layout.of({"tensor": 8})
    found = rank(program(layout, reduce(layout, "tensor")), make("v6e", 2, 4), layout, calibration("v6e"))
    assert found.count == 1
    assert found.best[0].step_s == found.default.step_s == found.row_major.step_s


@pytest.mark.parametrize(("generation", "shape"), [("v4", (2, 2, 1)), ("v5p", (2, 2, 1)), ("v6e", (2, 4))])
def test_permutes_find_a_ring_without_long_hops(generation, shape):
    slice_ = make(generation, *shape)
    layout = Layout.of({"ring": slice_.num_devices})
    found = rank(program(layout, ring_permute(layout, "ring")), slice_, layout, calibration(generation))
    assert longest_hop(slice_, found.best[0].placement.devices) == 1
    assert longest_hop(slice_, found.default.placement.devices) == 2
    assert found.best[0].step_s < found.default.step_s


def test_the_core_axis_of_v7x_carries_the_heaviest_collective():
    slice_ = make("v7x", 2, 2, 2)
    layout = Layout.of({"tensor": 2, "data": 8})
    traffic = (reduce(layout, "tensor", bytes_=64 * S), reduce(layout, "data", bytes_=S))
    found = rank(program(layout, *traffic), slice_, layout, calibration("v7x"))
    assert "tensor: the two cores of a chip" in found.best[0].placement.description
    assert found.best[0].step_s < found.default.step_s


@pytest.mark.parametrize("sizes", [(2, 8), (4, 2, 2), (8, 2), (2, 2, 2, 2), (16,)])
def test_every_factorization_of_sixteen_has_placements(sizes):
    layout = Layout.of({f"a{k}": size for k, size in enumerate(sizes)})
    found = rank(program(layout, exchange(layout, "a0")), make("v5e", 4, 4), layout, EXACT)
    for ranked in (*found.best, found.default, found.row_major, found.worst):
        assert sorted(ranked.placement.devices) == list(range(16))
    assert found.best[0].step_s <= found.default.step_s


def test_placements_avoid_a_slow_link():
    layout = Layout.of({"cfg": 4, "ulysses": 4})
    slow = [Degraded.parse("0,0:1,0=0.01")]
    traffic = (exchange(layout, "ulysses"),)
    found = rank(program(layout, *traffic), make("v5e", 4, 4), layout, EXACT, degraded=slow)
    assert found.best[0].step_s == pytest.approx(1.0)  # columns leave the slow link idle, blocks and rows do not
    assert found.default.step_s > 10


def test_ranking_is_repeatable():
    layout = Layout.of({"a": 2, "b": 2, "c": 4})
    traffic = (exchange(layout, "c"), ring_permute(layout, "b"), reduce(layout, "a", "b"))
    first, second = (rank(program(layout, *traffic), make("v5e", 4, 4), layout, EXACT) for _ in range(2))
    assert first == second


MIXES = [
    lambda layout: (ring_permute(layout, "a", bytes_=S), exchange(layout, "b", bytes_=S // 2)),
    lambda layout: (reduce(layout, "a"), ring_permute(layout, "a", "b", bytes_=3 * S)),
    lambda layout: (exchange(layout, "a", "b"), ring_permute(layout, "b"), reduce(layout, "b", bytes_=5 * S)),
]


@pytest.mark.parametrize("mix", range(len(MIXES)))
@pytest.mark.parametrize(("generation", "shape"), [("v5e", (2, 4)), ("v4", (2, 2, 2))])
def test_eight_devices_are_searched_completely(generation, shape, mix):
    slice_, layout = make(generation, *shape), Layout.of({"a": 2, "b": 4})
    ranker = Ranker(program(layout, *MIXES[mix](layout)), slice_, layout, calibration(generation))
    every = ranker.step_s(np.array(list(permutations(range(8)))))
    assert rank_with(ranker).best[0].step_s == pytest.approx(every.min(), rel=1e-9)


@pytest.mark.parametrize("mix", range(len(MIXES)))
def test_sixteen_devices_beat_random_bijections(mix):
    slice_, layout = make("v5e", 4, 4), Layout.of({"a": 4, "b": 4})
    ranker = Ranker(program(layout, *MIXES[mix](layout)), slice_, layout, calibration("v5e"))
    rng = np.random.default_rng(mix)
    tried = rng.permuted(np.tile(np.arange(16), (5000, 1)), axis=1)
    assert rank_with(ranker).best[0].step_s <= ranker.step_s(tried).min() * (1 + 1e-9)


def test_large_v5e_slices_rank_only_what_compiles_first():
    slice_, layout = make("v5e", 8, 8), Layout.of({"data": 16, "tensor": 4})
    ranker = Ranker(program(layout, reduce(layout, "tensor")), slice_, layout, calibration("v5e"))
    found = rank_with(ranker, starts=1)
    assert ranker.verdict(found.best[0].placement) is None
    assert "tensor: 2x2 blocks" in found.best[0].placement.description


def test_classes_of_large_v5e_slices_differ_in_what_is_direct():
    slice_, layout = make("v5e", 4, 8), Layout.of({"data": 8, "ring": 4})
    ranker = Ranker(program(layout, ring_permute(layout, "ring")), slice_, layout, calibration("v5e"))
    direct, relayed = routing_classes(ranker)
    assert direct.step_s < relayed.step_s
    assert "walked as rings" in direct.placement.description
    found = rank_with(ranker, like=relayed.placement)
    assert found.best[0].step_s == pytest.approx(relayed.step_s)
    assert 0 < found.refused < found.count


def test_there_is_one_class_where_routing_is_not_limited():
    slice_, layout = make("v6e", 4, 8), Layout.of({"data": 8, "ring": 4})
    ranker = Ranker(program(layout, ring_permute(layout, "ring")), slice_, layout, calibration("v6e"))
    (only,) = routing_classes(ranker)
    assert only.step_s == rank_with(ranker, starts=0).best[0].step_s


@pytest.mark.parametrize(("generation", "shape"), [("v5e", (1, 1)), ("v5p", (1, 1, 1)), ("v7x", (1, 1, 1))])
def test_a_single_chip_has_one_placement(generation, shape):
    slice_ = make(generation, *shape)
    layout = Layout.of({"data": slice_.num_devices})
    traffic = (reduce(layout, "data"), exchange(layout, "data"))
    found = rank(program(layout, *traffic), slice_, layout, calibration(generation))
    assert found.count == 1
    assert (found.best[0].step_s > 0) == (slice_.num_devices > 1)
