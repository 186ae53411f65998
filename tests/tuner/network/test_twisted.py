"""Traffic on twisted tori."""

from itertools import permutations

import numpy as np
import pytest

from tuner.calibration.calibration import CALIBRATIONS
from tuner.network.bounds import cut_bound_s
from tuner.network.cost import Network
from tuner.network.fabrics import fabric
from tuner.network.patterns import Pattern
from tuner.placements.canonical import Canon
from tuner.program.program import Collective, CollectiveKind
from tuner.slices.links import links
from tuner.slices.names import parse_slice
from tuner.slices.symmetry import symmetries


def exchange(slice_, kind=CollectiveKind.ALL_TO_ALL, size=None):
    size = size or slice_.num_devices
    groups = np.arange(slice_.num_devices).reshape(-1, size).tolist()
    return Collective(
        name="a", kind=kind, operand_bytes=1 << 26, result_bytes=1 << 26, groups=tuple(map(tuple, groups))
    )


def mean_distance(slice_):
    """Hops from one chip to all chips on average, by breadth-first search over the links."""
    ends = links(slice_)
    after = {}
    for source, target in zip(ends.source.tolist(), ends.target.tolist(), strict=True):
        after.setdefault(source, []).append(target)
    seen, reached = {0: 0}, [0]
    for chip in reached:
        for other in after[chip]:
            if other not in seen:
                seen[other] = seen[chip] + 1
                reached.append(other)
    return sum(seen.values()) / slice_.num_chips


@pytest.mark.parametrize(("name", "gain"), [("v4-4x4x8", 1.75), ("v4-4x8x8", 1.39)])
def test_an_all_to_all_gains_what_symmetry_promises(name, gain):
    """All six directions of a twisted torus carry the same, those of a plain one as much as their axis is long.

    With n chips, a link of an axis of length a carries n a/8 parts on a plain torus (a/4 hops, two directions), and
    n d/6 on a twisted one of mean distance d.
    """
    slices = [parse_slice(name), parse_slice(f"{name}_twisted")]
    plain, twisted = (
        Network(s, CALIBRATIONS["v4"]).cost(exchange(s), tuple(range(s.num_devices))).busiest_bytes for s in slices
    )
    assert plain / twisted == pytest.approx((max(slices[0].shape) / 8) / (mean_distance(slices[1]) / 6), rel=1e-6)
    assert plain / twisted == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize("name", ["v4-4x4x8_twisted", "v5p-4x8x8_twisted"])
def test_routes_are_shortest_and_end_where_they_should(name):
    slice_ = parse_slice(name)
    links, rng = fabric(slice_), np.random.default_rng(0)
    source, target = rng.integers(slice_.num_chips, size=(2, 300, 1))
    ends = np.array([[slice_.device(end) for end in links.link_ends(link)] for link in range(links.num_links)])
    for order in permutations(range(3)):
        loads = links.loads(source, target, [order])[:, 0]
        np.testing.assert_allclose(loads.sum(axis=1), links.distance(source, target)[:, 0])
        balance = np.zeros((len(loads), slice_.num_chips))
        np.add.at(balance.T, ends[:, 0], loads.T)
        np.subtract.at(balance.T, ends[:, 1], loads.T)
        rows = np.arange(len(loads))
        expected = np.zeros_like(balance)
        expected[rows, source[:, 0]] += 1
        expected[rows, target[:, 0]] -= 1
        np.testing.assert_allclose(balance, expected, atol=1e-9)


def test_many_pairs_load_links_by_the_sum():
    slice_ = parse_slice("v5p-4x4x8_twisted")
    links, rng = fabric(slice_), np.random.default_rng(1)
    source, target = rng.integers(128, size=(2, 1, 50))
    together = links.loads(source, target, links.orders)
    alone = links.loads(source.T, target.T, links.orders)
    np.testing.assert_allclose(together[0], alone.sum(axis=0))


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE])
@pytest.mark.parametrize("size", [4, 8, 128])
def test_turned_placements_cost_the_same_and_have_one_key(kind, size):
    slice_ = parse_slice("v5p-4x4x8_twisted")
    op = exchange(slice_, kind, size)
    placement = np.random.default_rng(2).permutation(128)
    images = symmetries(slice_).astype(np.int64)[::97, placement]
    network = Network(slice_, CALIBRATIONS["v5p"])
    times = [network.cost(op, tuple(row)).time_s for row in images.tolist()]
    np.testing.assert_allclose(times, times[0], rtol=1e-12)
    assert len(set(Canon(slice_, [Pattern.of(op)]).keys(images).tolist())) == 1


@pytest.mark.parametrize("name", ["v5p-4x4x8_twisted", "v4-4x8x8_twisted"])
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE])
def test_no_cost_is_below_the_bound_by_cuts(name, kind):
    slice_ = parse_slice(name)
    network = Network(slice_, CALIBRATIONS[slice_.generation_name])
    for size in (8, slice_.num_devices):
        op, devices = exchange(slice_, kind, size), tuple(range(slice_.num_devices))
        assert 0 < cut_bound_s(network, op, devices) <= network.cost(op, devices).time_s


@pytest.mark.parametrize("name", ["v5p-4x4x8", "v5p-4x8x8"])
def test_a_whole_all_reduce_sends_as_much_as_on_a_plain_torus(name):
    loads = []
    for slice_ in (parse_slice(name), parse_slice(f"{name}_twisted")):
        network = Network(slice_, CALIBRATIONS["v5p"])
        op = exchange(slice_, CollectiveKind.ALL_REDUCE)
        loads.append(network.cost(op, tuple(range(slice_.num_devices))).loads)
    plain, twisted = loads
    assert twisted.mean() == pytest.approx(plain.mean())
    assert twisted.max() == pytest.approx(twisted.mean()), "all links are alike"
