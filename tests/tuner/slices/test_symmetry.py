import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.slices.generations import GENERATIONS
from tuner.slices.links import links
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    name = draw(st.sampled_from(list(GENERATIONS)))
    dimensions = GENERATIONS[name].dimensions
    sizes = st.integers(1, 5 if dimensions == 2 else 4)
    shape = draw(st.tuples(*[sizes] * dimensions))
    wrap = draw(st.tuples(*[st.booleans()] * dimensions))
    return Slice(generation_name=name, shape=shape, wrap=wrap)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("v5e-1x1", 1),
        ("v5e-2x4", 4),
        ("v5e-4x4", 8),
        ("v5e-8x16", 2 * 32),
        ("v6e-16x16", 8 * 256),
        ("v5p-2x2x1", 8),
        ("v5p-2x2x4", 16),
        ("v5p-2x4x4", 16),
        ("v5p-4x4x4", 48 * 64),
        ("v7x-2x2x1", 16),
        ("v7x-1x1x1", 2),
    ],
)
def test_order_of_the_group(name: str, order: int) -> None:
    slice_ = parse_slice(name)
    assert symmetries(slice_).shape == (order, slice_.num_devices)


def test_the_eight_of_a_square() -> None:
    found = {tuple(row) for row in symmetries(parse_slice("v5e-2x2")).tolist()}
    assert found == {
        (0, 1, 2, 3),
        (1, 0, 3, 2),
        (2, 3, 0, 1),
        (3, 2, 1, 0),
        (0, 2, 1, 3),
        (1, 3, 0, 2),
        (2, 0, 3, 1),
        (3, 1, 2, 0),
    }


def test_without_translations_a_torus_turns_like_a_cube() -> None:
    slice_ = parse_slice("v5p-4x4x4")
    few = symmetries(slice_, translations=False)
    assert few.shape == (48, 64)
    assert {tuple(row) for row in few.tolist()} <= {tuple(row) for row in symmetries(slice_).tolist()}


@settings(max_examples=60, deadline=None)
@given(slice_=slices(), translations=st.booleans(), data=st.data())
def test_they_are_a_group_of_permutations_that_keep_links(
    slice_: Slice, translations: bool, data: st.DataObject
) -> None:
    group = symmetries(slice_, translations=translations)
    rows = {row.tobytes() for row in group}
    assert len(rows) == len(group)
    assert group[0].tolist() == list(range(slice_.num_devices))
    assert np.array_equal(np.sort(group, axis=1), np.broadcast_to(group[0], group.shape))
    for _ in range(8):
        first, second = (group[data.draw(st.integers(0, len(group) - 1))] for _ in range(2))
        assert first[second].tobytes() in rows
        assert np.argsort(first).astype(np.int32).tobytes() in rows
    _keep_links(slice_, group)


def _keep_links(slice_: Slice, group: np.ndarray) -> None:
    chips = group[:, :: slice_.cores] // slice_.cores
    if slice_.cores == 2:
        assert np.array_equal(group[:, 1::2] // 2, chips)
    found = links(slice_)
    joined = np.zeros((slice_.num_chips, slice_.num_chips), bool)
    joined[found.source, found.target] = True
    assert joined[chips[:, found.source], chips[:, found.target]].all()
