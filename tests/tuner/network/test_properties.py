"""What must hold for any placement and any traffic."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.calibration.calibration import CALIBRATIONS
from tuner.layouts.layout import Layout
from tuner.network.bounds import cut_bound_s
from tuner.network.cost import Degraded, Network
from tuner.network.rings import TOPOLOGY_AWARE
from tuner.placements.canonical import Canon
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Done, Program, Start
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries
from tuner.timeline.ranker import Ranker

SLICES = [
    Slice(generation_name="v5e", shape=(2, 4), wrap=(False, False)),
    Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False)),
    Slice(generation_name="v6e", shape=(4, 4), wrap=(True, True)),
    Slice(generation_name="v6e", shape=(2, 8), wrap=(False, True)),
    Slice(generation_name="v5p", shape=(2, 2, 2), wrap=(False,) * 3),
    Slice(generation_name="v4", shape=(2, 2, 4), wrap=(False,) * 3),
    Slice(generation_name="v7x", shape=(2, 2, 2), wrap=(False,) * 3),
]
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.DCN]


@st.composite
def cases(draw, count=1):
    """A slice, a placement and collectives over groups of a random size."""
    slice_ = draw(st.sampled_from(SLICES))
    n = slice_.num_devices
    devices = draw(st.permutations(range(n)))
    ops = []
    for index in range(draw(st.integers(1, count))):
        size = draw(st.sampled_from([g for g in (2, 4, 8, 16) if g <= n]))
        stride = draw(st.sampled_from([s for s in (1, 2, 4) if s * size <= n]))
        ids = np.arange(n).reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
        kind = draw(st.sampled_from(KINDS))
        bytes_ = draw(st.sampled_from([1 << 12, 1 << 18, 1 << 24]))
        groups = tuple(map(tuple, ids.tolist()))
        permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
        ops.append(
            Collective(
                name=f"c{index}",
                kind=kind,
                operand_bytes=bytes_,
                result_bytes=bytes_ * size if kind is CollectiveKind.ALL_GATHER else bytes_,
                groups=() if permute else groups,
                pairs=tuple((a, b) for g in groups for a, b in zip(g, (*g[1:], g[0]), strict=True)) if permute else (),
            )
        )
    return slice_, tuple(devices), tuple(ops)


def schedule(ops, overlapped):
    work = Compute(name="dot", kind=ComputeKind.MATMUL, cycles=100_000)
    if not overlapped:
        return (work, *ops)
    return (*(Start(collective=op) for op in ops), work, *(Done(name=op.name) for op in ops))


def ranker(slice_, ops, overlapped, degraded=()):
    program = Program(devices=slice_.num_devices, schedule=schedule(ops, overlapped))
    layout = Layout.of({"all": slice_.num_devices})
    return Ranker(program, slice_, layout, CALIBRATIONS[slice_.generation_name], degraded)


def images(slice_, devices, *, by_compiler):
    """All images of a placement. Rings do not know the seam of a closed axis: the compiler (asked on v6e-8x8) takes a
    line
    across it in listed order, so shifted placements are the same to the network, but not to the compiler."""
    shifts = not (by_compiler and slice_.generation_name in TOPOLOGY_AWARE)
    return symmetries(slice_, translations=shifts).astype(np.int64)[:, list(devices)]


@settings(max_examples=60, deadline=None)
@given(case=cases(count=3), overlapped=st.booleans())
def test_symmetric_placements_cost_the_same(case, overlapped):
    slice_, devices, ops = case
    times = ranker(slice_, ops, overlapped).step_s(images(slice_, devices, by_compiler=True))
    np.testing.assert_allclose(times, times[0], rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(case=cases(count=2))
def test_symmetric_placements_have_one_key(case):
    slice_, devices, ops = case
    everywhere = images(slice_, devices, by_compiler=False)
    assert len(set(Canon(slice_).keys(everywhere).tolist())) == 1
    patterns = ranker(slice_, ops, False).patterns
    seen = images(slice_, devices, by_compiler=True)
    assert len(set(Canon(slice_, patterns).keys(seen).tolist())) == 1


@settings(max_examples=60, deadline=None)
@given(case=cases(count=2), seed=st.integers(0, 1000))
def test_placements_with_one_key_cost_the_same(case, seed):
    slice_, devices, ops = case
    rng = np.random.default_rng(seed)
    placements = np.array([devices, *(rng.permutation(slice_.num_devices) for _ in range(200))])
    scored = ranker(slice_, ops, False)
    keys, times = Canon(slice_, scored.patterns).keys(placements), scored.step_s(placements)
    for key in set(keys.tolist()):
        same = times[keys == np.uint64(key)]
        np.testing.assert_allclose(same, same[0], rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(case=cases(count=1), factor=st.sampled_from([2, 3, 7]))
def test_more_bytes_never_make_a_link_idler_nor_a_collective_faster(case, factor):
    slice_, devices, (op,) = case
    network = Network(slice_, CALIBRATIONS[slice_.generation_name])
    above = op.operand_bytes if op.operand_bytes > 1 << 20 else (1 << 20) * factor  # one message-size regime
    more = replace(op, operand_bytes=above * factor, result_bytes=op.result_bytes // op.operand_bytes * above * factor)
    less = replace(op, operand_bytes=above, result_bytes=op.result_bytes // op.operand_bytes * above)
    small, large = network.cost(less, devices), network.cost(more, devices)
    assert (large.loads >= small.loads).all()
    assert large.time_s >= small.time_s


@settings(max_examples=60, deadline=None)
@given(case=cases(count=3), overlapped=st.booleans())
def test_another_collective_never_makes_a_step_faster(case, overlapped):
    slice_, devices, ops = case
    times = [float(ranker(slice_, ops[:k], overlapped).step_s(np.array([devices]))[0]) for k in range(len(ops) + 1)]
    assert times == sorted(times)


@settings(max_examples=60, deadline=None)
@given(case=cases(count=3), overlapped=st.booleans(), data=st.data())
def test_a_slower_link_never_makes_a_step_faster(case, overlapped, data):
    slice_, devices, ops = case
    links = Network(slice_, CALIBRATIONS[slice_.generation_name]).fabric
    between = np.flatnonzero(links.exists & ~links.is_core_link()).tolist()
    ends = links.link_ends(data.draw(st.sampled_from(between)))
    rates = [1.0, 0.9, 0.5, 0.01]
    times = [
        float(ranker(slice_, ops, overlapped, [Degraded(ends=ends, rate=rate)]).step_s(np.array([devices]))[0])
        for rate in rates
    ]
    assert all(slow >= fast * (1 - 1e-12) for fast, slow in pairwise(times))


@settings(max_examples=200, deadline=None)
@given(case=cases(count=1))
def test_no_cost_is_below_the_bound_by_cuts(case):
    slice_, devices, (op,) = case
    network = Network(slice_, CALIBRATIONS[slice_.generation_name])
    assert cut_bound_s(network, op, devices) <= network.cost(op, devices).time_s * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(case=cases(count=3), overlapped=st.booleans())
def test_a_prediction_adds_up(case, overlapped):
    slice_, devices, ops = case
    result = ranker(slice_, ops, overlapped).predict(Placement(devices=devices))
    total = result.compute_s + result.attention_s + result.exposed_communication_s
    assert np.isclose(result.step_s, total, rtol=1e-9)
    assert result.exposed_communication_s <= result.communication_s * (1 + 1e-9) or overlapped
    assert 0 <= result.idle_links <= result.links
