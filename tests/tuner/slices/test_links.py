import numpy as np
import pytest

from tuner.slices.links import chip_coords, links
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice


def pairs(slice_: Slice) -> list[tuple[int, int]]:
    found = links(slice_)
    return list(zip(found.source.tolist(), found.target.tolist(), strict=True))


def test_a_two_by_two_has_eight_directed_links() -> None:
    assert sorted(pairs(parse_slice("v5e-2x2"))) == [(0, 1), (0, 2), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v5e-1x1", 0),
        ("v5e-1x8", 14),
        ("v5e-4x4", 48),
        ("v5e-8x16", 2 * (7 * 16 + 8 * 16)),  # the axis of 16 wraps
        ("v5e-16x16", 4 * 256),
        ("v5p-2x2x4", 2 * (1 * 2 * 4 + 2 * 1 * 4 + 2 * 2 * 3)),
        ("v5p-4x4x8", 6 * 128),
    ],
)
def test_number_of_directed_links(name: str, expected: int) -> None:
    found = pairs(parse_slice(name))
    assert len(found) == len(set(found)) == expected


def test_an_axis_of_two_that_wraps_has_no_second_link() -> None:
    plain, wrapped = parse_slice("v5e-2x4"), parse_slice("v5e-2x4", wrap=(True, False))
    assert pairs(plain) == pairs(wrapped)


def test_wraparound_runs_forward_from_the_last_chip_to_the_first() -> None:
    slice_ = parse_slice("v5e-4x4", wrap=(True, False))
    found = links(slice_)
    (index,) = np.flatnonzero((found.source == 3) & (found.target == 0))
    assert (found.axis[index], found.step[index]) == (0, 1)


@pytest.mark.parametrize("name", ["v5e-4x4", "v5p-2x4x4", "v5p-4x4x8", "v7x-2x2x1", "v6e-16x8"])
def test_every_link_joins_neighbours_and_has_its_reverse(name: str) -> None:
    slice_ = parse_slice(name)
    coords, found = chip_coords(slice_), links(slice_)
    assert [tuple(row) for row in coords.tolist()] == [
        slice_.coords(chip * slice_.cores) for chip in range(slice_.num_chips)
    ]
    difference = coords[found.target] - coords[found.source]
    rows = np.arange(len(found))
    along = difference[rows, found.axis]
    sizes = np.array(slice_.shape)[found.axis]
    assert np.all((along - found.step) % sizes == 0)
    difference[rows, found.axis] = 0
    assert not difference.any()
    assert {(b, a) for a, b in pairs(slice_)} == set(pairs(slice_))
