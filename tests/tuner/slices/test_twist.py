"""Twisted tori, compared with figures of the TPU v4 paper and of lattice graphs."""

from collections import Counter

import numpy as np
import pytest

from tuner.errors import InvalidValue, UnknownName
from tuner.network.fabrics import fabric
from tuner.slices.links import links
from tuner.slices.names import parse_slice
from tuner.slices.shapes import note
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries
from tuner.slices.twist import onto_grid, rings_along

NAMES = ["v4-4x4x8_twisted", "v5p-4x8x8_twisted", "v5p-8x4x4_twisted"]


def joined(slice_: Slice) -> np.ndarray:
    found = links(slice_)
    out = np.zeros((slice_.num_chips, slice_.num_chips), bool)
    out[found.source, found.target] = True
    return out


def hops(slice_: Slice) -> np.ndarray:
    """Hops between all chips by walking the graph."""
    graph = joined(slice_)
    out = np.full(graph.shape, -1)
    reached, step = np.eye(len(graph), dtype=bool), 0
    while (out < 0).any():
        out[(out < 0) & reached] = step
        reached, step = (reached.astype(np.float32) @ graph > 0) | reached, step + 1
    return out


def test_a_short_axis_closes_half_of_the_long_axes_further() -> None:
    slice_ = parse_slice("v5p-4x4x8_twisted")
    places = np.array([[4, 0, 0], [0, 4, 6], [-1, 2, 1], [4, 4, 0], [1, 2, 8], [1, 2, -1]], np.int32)
    assert onto_grid(slice_, places).tolist() == [[0, 0, 4], [0, 0, 2], [3, 2, 5], [0, 0, 0], [1, 2, 0], [1, 2, 7]]
    slice_ = parse_slice("v5p-4x8x8_twisted")
    assert onto_grid(slice_, np.array([[4, 1, 6], [1, 8, 0]], np.int32)).tolist() == [[0, 5, 2], [1, 0, 0]]


@pytest.mark.parametrize("name", NAMES)
def test_every_chip_has_six_neighbours_and_every_link_its_reverse(name: str) -> None:
    slice_ = parse_slice(name)
    graph, found = joined(slice_), links(slice_)
    assert len(found) == 6 * slice_.num_chips
    assert (graph.sum(axis=0) == 6).all()
    assert (graph == graph.T).all()


@pytest.mark.parametrize(
    ("name", "plain", "twisted"),
    [("v5p-4x4x8", 8, 6), ("v5p-4x8x8", 10, 6), ("v5p-8x8x16", 16, 12)],
)
def test_the_diameter_is_that_of_the_lattice(name: str, plain: int, twisted: int) -> None:
    """3k/2 for k x k x 2k (face-centred) and k x 2k x 2k (body-centred)."""
    assert hops(parse_slice(name)).max() == plain
    assert hops(parse_slice(f"{name}_twisted")).max() == twisted


@pytest.mark.parametrize("name", NAMES)
def test_the_fabric_counts_hops_as_the_links_do(name: str) -> None:
    slice_ = parse_slice(name)
    chips = np.arange(slice_.num_chips)
    assert np.array_equal(fabric(slice_).distance(chips[:, None], chips[None]), hops(slice_))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", range(3))
def test_links_of_an_axis_are_rings(name: str, axis: int) -> None:
    slice_ = parse_slice(name)
    rings, found = rings_along(slice_, axis), links(slice_)
    forward = (found.axis == axis) & (found.step == 1)
    assert sorted(rings.ravel().tolist()) == list(range(slice_.num_chips))
    assert set(zip(rings.ravel().tolist(), np.roll(rings, -1, axis=1).ravel().tolist(), strict=True)) == set(
        zip(found.source[forward].tolist(), found.target[forward].tolist(), strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_turns_of_a_cube_and_a_shift_onto_every_chip_keep_the_links(name: str) -> None:
    slice_ = parse_slice(name)
    turns, found, graph = symmetries(slice_, translations=False), links(slice_), joined(slice_)
    assert len({row.tobytes() for row in turns}) == 48
    everything = symmetries(slice_)
    assert everything.shape == (48 * slice_.num_chips, slice_.num_chips)
    assert everything[0].tolist() == list(range(slice_.num_chips))
    assert Counter(everything[:, 0].tolist()) == dict.fromkeys(range(slice_.num_chips), 48)
    for row in everything[:: 7 if slice_.num_chips > 128 else 1]:
        assert graph[row[found.source], row[found.target]].all()


def test_names() -> None:
    plain, twisted = parse_slice("v5p-4x4x8"), parse_slice("V5P-4x4x8_Twisted")
    assert (plain.twisted, twisted.twisted) == (False, True)
    assert twisted.name == "v5p-4x4x8_twisted"
    assert parse_slice(twisted.name) == twisted
    assert parse_slice("v5p-4x4x8_untwisted") == plain
    assert "v5p-4x4x8_twisted" in note(plain)
    assert "twisted" in note(twisted)


@pytest.mark.parametrize("name", ["v5p-4x4x4_twisted", "v5p-2x2x4_twisted", "v7x-4x4x8_twisted", "v5p-4x4x12_twisted"])
def test_other_shapes_have_no_twisted_torus(name: str) -> None:
    with pytest.raises(UnknownName, match="no twisted torus"):
        parse_slice(name)


def test_an_open_axis_cannot_be_twisted() -> None:
    with pytest.raises(InvalidValue, match="all axes closed"):
        Slice(generation_name="v5p", shape=(4, 4, 8), wrap=(True, True, False), twisted=True)
