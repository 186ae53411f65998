import pytest

from tuner.errors import InvalidValue
from tuner.slices.hosts import host_bounds, host_grid, host_of, num_hosts
from tuner.slices.names import parse_slice


@pytest.mark.parametrize(
    ("name", "bounds", "grid"),
    [
        ("v5e-1x1", (1, 1, 1), (1, 1, 1)),
        ("v5e-1x8", (1, 2, 1), (1, 4, 1)),
        ("v5e-4x4", (2, 2, 1), (2, 2, 1)),
        ("v5p-2x4x4", (2, 2, 1), (1, 2, 4)),
        ("v7x-1x1x1", (1, 1, 1), (1, 1, 1)),
    ],
)
def test_bounds(name: str, bounds: tuple[int, ...], grid: tuple[int, ...]) -> None:
    slice_ = parse_slice(name)
    assert host_bounds(slice_) == bounds
    assert host_grid(slice_) == grid


def test_hosts_count_with_x_fastest() -> None:
    slice_ = parse_slice("v5e-4x4")
    hosts = [host_of(slice_, device) for device in range(16)]
    assert hosts == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]


def test_both_cores_of_a_chip_are_on_one_host() -> None:
    slice_ = parse_slice("v7x-2x2x2")
    hosts = [host_of(slice_, device) for device in range(16)]
    assert hosts == [0] * 8 + [1] * 8
    assert num_hosts(slice_) == 2
    with pytest.raises(InvalidValue, match="devices 0 to 15"):
        host_of(slice_, 16)
