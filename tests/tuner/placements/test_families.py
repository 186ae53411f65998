"""Structured placements: what they cover, and what they are called."""

from itertools import pairwise

import numpy as np
import pytest

from tuner.layouts.layout import Layout
from tuner.placements.canonical import Canon
from tuner.placements.families import closed_walk, nestings, snake, splits, structures
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries


def make(generation, *shape, wrap=None):
    return Slice(generation_name=generation, shape=shape, wrap=wrap or (False,) * len(shape))


def test_splits_are_all_matrices_with_these_products():
    found = list(splits((4, 4), (4, 4)))
    assert len(set(found)) == len(found) == 3
    assert ((2, 2), (2, 2)) in found
    assert all(np.prod(rows, axis=0).tolist() == [4, 4] for rows in found)
    assert list(splits((3, 4), (4, 4))) == []


def test_nestings_are_all_orders_on_a_shared_axis():
    assert set(nestings(((2, 1), (2, 4)))) == {((1, 1), (2, 1)), ((2, 1), (1, 1))}


@pytest.mark.parametrize("block", [(2, 4), (4, 4), (2, 2, 2), (3, 2, 5), (4, 4, 4)])
def test_closed_walks_have_single_hops(block):
    walk = closed_walk(block)
    assert sorted(walk) == sorted(np.ndindex(*block))
    hops = [sum(abs(a - b) for a, b in zip(p, q, strict=True)) for p, q in pairwise([*walk, walk[0]])]
    assert set(hops) == {1}


def test_snakes_have_single_hops():
    assert all(sum(abs(a - b) for a, b in zip(p, q, strict=True)) == 1 for p, q in pairwise(snake((3, 4, 5))))


@pytest.mark.parametrize(
    ("slice_", "axes"),
    [
        (make("v5e", 4, 4), {"a": 2, "b": 4, "c": 2}),
        (make("v5p", 2, 2, 4), {"a": 4, "b": 4}),
        (make("v7x", 2, 2, 2), {"a": 2, "b": 8}),
    ],
)
def test_structures_are_bijections(slice_, axes):
    found = list(structures(slice_, Layout.of(axes)))
    assert found
    for structure in found:
        assert sorted(structure.devices.tolist()) == list(range(slice_.num_devices))
        assert all(name in structure.description for name in axes)


def test_every_axis_order_line_and_block_is_there():
    slice_, layout = make("v5e", 4, 4), Layout.of({"cfg": 4, "ulysses": 4})
    names = {structure.description for structure in structures(slice_, layout, ordered=())}
    assert names == {
        "cfg: lines of 4 along x; ulysses: lines of 4 along y",
        "cfg: lines of 4 along y; ulysses: lines of 4 along x",
        "cfg: 2x2 blocks; ulysses: 2x2 chips, 2x2 apart",
        "cfg: 2x2 chips, 2x2 apart; ulysses: 2x2 blocks",
        "cfg: 2x2 chips, 1x2 apart; ulysses: 2x2 chips, 2x1 apart",
        "cfg: 2x2 chips, 2x1 apart; ulysses: 2x2 chips, 1x2 apart",
    }


def test_halves_pairs_and_cores_have_names():
    slice_, layout = make("v7x", 2, 2, 4), Layout.of({"cfg": 2, "ulysses": 8, "tensor": 2})
    names = {structure.description for structure in structures(slice_, layout, ordered=())}
    assert "cfg: the two halves along z; ulysses: 2x2x2 blocks; tensor: the two cores of a chip" in names


@pytest.mark.parametrize("wrap", [(False, False), (True, True)])
def test_keys_tell_apart_exactly_what_symmetries_do_not_join(wrap):
    slice_ = make("v6e", 4, 4, wrap=wrap)
    found = np.stack([s.devices for s in structures(slice_, Layout.of({"a": 2, "b": 4, "c": 2}))])
    keys = Canon(slice_).keys(found).tolist()
    moves = symmetries(slice_).astype(np.int64)
    orbits = [min(map(tuple, moves[:, row].tolist())) for row in found]
    by_key = {}
    for key, orbit in zip(keys, orbits, strict=True):
        assert by_key.setdefault(key, orbit) == orbit
    assert len(set(keys)) == len(set(orbits)) < len(found)
