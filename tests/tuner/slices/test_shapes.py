import math

import pytest

from tuner.errors import InvalidValue
from tuner.slices.generations import GENERATIONS, generation
from tuner.slices.names import parse_slice
from tuner.slices.shapes import is_standard, make_slice, note, refusal, standard_shapes


def test_lite_chips_sell_eight_shapes() -> None:
    expected = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
    assert standard_shapes("v5e") == standard_shapes("v6e") == expected


@pytest.mark.parametrize("name", ["v4", "v5p", "v7x"])
def test_three_dimensional_shapes(name: str) -> None:
    shapes = standard_shapes(name)
    assert len(set(shapes)) == len(shapes)
    assert {(2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8)} <= set(shapes)
    assert ((1, 1, 1) in shapes) == (name == "v7x")
    for shape in shapes:
        assert math.prod(shape) <= generation(name).pod_chips
        if math.prod(shape) > 32:
            assert list(shape) == sorted(shape)
            assert all(size % 4 == 0 for size in shape)


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_compiler_takes_what_is_sold(name: str) -> None:
    assert all(refusal(generation(name), shape) is None for shape in standard_shapes(name))


def test_what_is_not_sold_is_legal_and_says_so() -> None:
    slice_ = parse_slice("v5e-2x8")
    assert not is_standard(slice_)
    assert "the cloud does not sell it; sold: 1x1, 2x2" in note(slice_)


def test_a_turned_shape_is_its_own_slice_and_says_so() -> None:
    slice_ = parse_slice("v5e-4x2")
    assert slice_ != parse_slice("v5e-2x4")
    assert not is_standard(slice_)
    assert "sold as v5e-2x4" in note(slice_)


@pytest.mark.parametrize(
    ("name", "twisted"), [("v5p-4x4x8", True), ("v4-4x8x8", True), ("v5p-4x4x4", False), ("v7x-4x4x8", False)]
)
def test_a_shape_that_may_be_twisted_says_so(name: str, twisted: bool) -> None:
    assert ("twisted" in note(parse_slice(name))) == twisted


def test_an_ordinary_slice_has_no_note() -> None:
    assert note(parse_slice("v5e-4x4")) == ""


def test_wraparound_of_ones_own_is_noted() -> None:
    assert "wraparound is set to" in note(parse_slice("v5e-4x4", wrap=(True, True)))


def test_refused_shapes_name_the_numbers() -> None:
    with pytest.raises(InvalidValue, match=r"v4-2x3x1: 3 chips along y do not divide into hosts of 2x2x1"):
        make_slice("v4", (2, 3, 1))
    assert make_slice("v4", (2, 2, 3)).num_chips == 12
    assert make_slice("v5e", (1, 8)).num_chips == 8
