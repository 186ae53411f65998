import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidValue, UnknownName
from tuner.slices.generations import GENERATIONS
from tuner.slices.names import accelerator_name, parse_slice
from tuner.slices.shapes import standard_shapes


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("v5e-4x4", "v5e-4x4"),
        ("v5e-4x2", "v5e-4x2"),
        ("v5e-2x8", "v5e-2x8"),
        ("v5p-2x2x1", "v5p-2x2x1"),
        ("v4-2x2x4", "v4-2x2x4"),
        ("v7x-2x2x1", "v7x-2x2x1"),
        ("tpu7x-2x2x2", "v7x-2x2x2"),
        ("v5:2x2x1", "v5p-2x2x1"),
        ("v5litepod-16", "v5e-4x4"),
        ("V5LitePod-8", "v5e-2x4"),
        (" v5e-16 ", "v5e-4x4"),
        ("v6e-1", "v6e-1x1"),
        ("v6e-8", "v6e-2x4"),
        ("V6E-256", "v6e-16x16"),
        ("v4-8", "v4-2x2x1"),
        ("v4-32", "v4-2x2x4"),
        ("v5p-8", "v5p-2x2x1"),
        ("v5p-256", "v5p-4x4x8"),
        ("tpu7x-2", "v7x-1x1x1"),
        ("tpu7x-8", "v7x-2x2x1"),
        ("v7x-8", "v7x-2x2x1"),
        ("TPU7x-128", "v7x-4x4x4"),
    ],
)
def test_names_that_people_type(text: str, name: str) -> None:
    assert parse_slice(text).name == name


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        # From the table that MaxText compiles ahead of time with.
        ("v5p-640", (4, 4, 20)),
        ("v5p-2688", (4, 12, 28)),
        ("v5p-6912", (12, 12, 24)),
        ("v5p-10368", (12, 12, 36)),
        ("v5p-11520", (12, 20, 24)),
        ("v5p-17920", (16, 20, 28)),
        ("tpu7x-9216", (12, 16, 24)),
        ("tpu7x-18432", (16, 24, 24)),
        ("v4-1536", (8, 8, 12)),
        ("v4-4096", (8, 16, 16)),
    ],
)
def test_a_number_stands_for_the_most_cubic_shape(text: str, shape: tuple[int, ...]) -> None:
    assert parse_slice(text).shape == shape


@pytest.mark.parametrize(
    ("text", "wrap"),
    [
        ("v5e-8x8", (False, False)),
        ("v5e-8x16", (False, True)),
        ("v6e-16x8", (True, False)),
        ("v6e-16x16", (True, True)),
        ("v4-2x4x4", (False,) * 3),
        ("v5p-4x4x4", (True,) * 3),
        ("v7x-4x4x12", (True,) * 3),
        ("v5p-4x4x6", (False,) * 3),
    ],
)
def test_wraparound_follows_from_the_shape(text: str, wrap: tuple[bool, ...]) -> None:
    assert parse_slice(text).wrap == wrap


def test_wraparound_can_be_said() -> None:
    assert parse_slice("v5e-4x4", wrap=(True, False)).wrap == (True, False)
    with pytest.raises(InvalidValue, match="do not match"):
        parse_slice("v5e-4x4", wrap=(True,))


def test_a_shape_that_the_compiler_refuses_lists_the_standard_ones() -> None:
    with pytest.raises(UnknownName, match=r"3 chips along x.*1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16") as caught:
        parse_slice("v5e-3x3")
    assert "v5e-8x8" in caught.value.nearest


@pytest.mark.parametrize(
    ("text", "says", "nearest"),
    [
        ("v5e-12", "counts chips and the nearest are 4, 8, 16", "v5e-8"),
        ("v4-7", "counts TensorCores", "v4-8"),
        ("v4-4", "counts TensorCores", "v4-8"),
        ("v9-8", "no TPU generation 'v9'.*v4, v5e, v5p, v6e, v7x", "v4-8"),
        ("v5ee-4x4", "no TPU generation", "v5e-4x4"),
        ("v5p-4x4", "3-D grids", "v5p-4x4x4"),
        ("v5e-4x4x1", "2-D grids", "v5e-4x4"),
        ("v5e4x4", "is not the name of a slice", "v5e-4x4"),
        ("v5e-0x4", "0 chips along x", "v5e-2x4"),
    ],
)
def test_unknown_names_say_what_is_near(text: str, says: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=says) as caught:
        parse_slice(text)
    assert nearest in caught.value.nearest


def test_cpu_devices_are_counted() -> None:
    slice_ = parse_slice("CPU-8")
    assert (slice_.name, slice_.num_devices, slice_.generation.has_links) == ("cpu-8", 8, False)
    assert slice_.generation_name not in GENERATIONS
    for wrong in ("cpu-0", "cpu-2x4", "cpu-65"):
        with pytest.raises(UnknownName, match="CPU devices are counted, cpu-1 to cpu-64"):
            parse_slice(wrong)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_standard_shape_has_a_name_that_reads_back(generation: str) -> None:
    for shape in standard_shapes(generation):
        slice_ = parse_slice(f"{generation}-{'x'.join(map(str, shape))}")
        assert slice_.shape == shape
        assert parse_slice(slice_.name) == slice_
        assert parse_slice(accelerator_name(slice_)).num_chips == slice_.num_chips


@given(st.text(max_size=12))
def test_any_text_is_a_slice_or_an_unknown_name(text: str) -> None:
    try:
        slice_ = parse_slice(text)
    except UnknownName:
        return
    assert parse_slice(slice_.name).shape == slice_.shape
