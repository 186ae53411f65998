import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.fakes import FakeWorkload
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import COMPILER_DEFAULT, Choice, Dimension, Space, factorizations
from tuner.search.parameters import Parameters

NAMES = ("data", "heads", "tensor")
SPACE = Space(
    dimensions=(
        Dimension(name="data", sizes=(1, 2)),
        Dimension(name="heads", sizes=(1, 2, 3, 4, 6, 12)),
        Dimension(name="tensor", sizes=(1, 2, 4, 8, 16)),
    ),
    compiler=(Choice(name="fast", values=("1", COMPILER_DEFAULT), needs=("heads",)),),
)
PARAMETERS = Parameters(SPACE)


@given(st.sampled_from([1, 2, 8, 24, 48, 64]), st.data())
def test_any_sizes_are_taken_to_a_mesh_of_the_slice(devices: int, data: st.DataObject) -> None:
    wanted = {d.name: data.draw(st.sampled_from(d.sizes)) for d in SPACE.dimensions}
    sizes = PARAMETERS.mesh(devices, wanted)
    assert math.prod(int(size) for size in sizes.values()) == devices
    assert all(sizes[d.name] in d.sizes for d in SPACE.dimensions)
    assert PARAMETERS.mesh(devices, sizes) == sizes


def test_a_mesh_of_the_slice_stays_what_it_is() -> None:
    for shape in factorizations(48, SPACE.dimensions):
        wanted = dict(zip(NAMES, shape, strict=True))
        assert PARAMETERS.mesh(48, wanted) == wanted


def test_the_nearest_size_is_taken_outermost_first() -> None:
    assert PARAMETERS.mesh(64, {"data": 1, "heads": 12, "tensor": 1}) == {"data": 1, "heads": 4, "tensor": 16}
    assert PARAMETERS.mesh(24, {"data": 1, "heads": 1, "tensor": 1}) == {"data": 1, "heads": 3, "tensor": 8}


def test_a_slice_that_has_no_mesh_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="no mesh of 7 devices"):
        PARAMETERS.mesh(7, {"data": 1, "heads": 1, "tensor": 1})


def test_candidates_and_parameters_are_the_same() -> None:
    parameters = Parameters(FakeWorkload().space)
    candidate = Candidate(
        layout=Layout.of({"data": 4, "tensor": 2}, {"weights": "data", "blocks": "1024"}),
        compiler_options=(("xla_fast", "true"),),
    )
    params = parameters.params(candidate)
    assert params == {"data": 4, "tensor": 2, "weights": "data", "blocks": "1024", "compiler.xla_fast": "true"}
    assert parameters.candidate(params) == candidate
    assert set(params) == set(parameters.distributions) == set(parameters.defaults)


@pytest.mark.parametrize(("heads", "flags"), [(1, (("fast", "1"),)), (2, ())])
def test_a_flag_that_makes_no_difference_is_left_as_it_starts(heads: int, flags: tuple[tuple[str, str], ...]) -> None:
    params = {"data": 1, "heads": heads, "tensor": 4, "compiler.fast": COMPILER_DEFAULT}
    assert PARAMETERS.candidate(params).compiler_options == flags
