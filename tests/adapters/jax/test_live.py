from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.jax.live import WrongDevices, live_slice, place_on
from tests.adapters.jax.fakes import FakeDevice, fake_devices
from tuner.slices.links import chip_coords
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice

NAMES = ["v5e-2x2", "v5e-4x4", "v5e-2x4", "v6e-8x16", "v5p-2x2x4", "v4-4x4x4", "v7x-2x2x1", "v7x-2x4x4"]


def distances(slice_: Slice, coords: np.ndarray) -> np.ndarray:
    """Hops between every two rows of `coords` on a slice."""
    apart = np.abs(coords[:, None, :] - coords[None, :, :])
    for axis, (size, wraps) in enumerate(zip(slice_.shape, slice_.wrap, strict=True)):
        if wraps:
            apart[..., axis] = np.minimum(apart[..., axis], size - apart[..., axis])
    return apart.sum(axis=-1)


def distances_between(devices: np.ndarray, slice_: Slice) -> np.ndarray:
    coords = np.array([device.coords[: len(slice_.shape)] for device in devices])
    return distances(slice_, coords - coords.min(axis=0))


def distances_planned(slice_: Slice) -> np.ndarray:
    return distances(slice_, chip_coords(slice_).repeat(slice_.cores, axis=0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_live_slice_is_recognised_in_any_order(name: str, seed: int) -> None:
    slice_ = parse_slice(name)
    assert live_slice(fake_devices(slice_, seed=seed)) == slice_


@pytest.mark.parametrize(
    ("kind", "name"), [("TPU v5 lite", "v5e-2x2"), ("TPU v5e", "v5e-2x2"), ("TPU v6 lite", "v6e-2x2")]
)
def test_names_of_one_chip(kind: str, name: str) -> None:
    assert live_slice(fake_devices(parse_slice("v5e-2x2"), kind=kind)).name == name


@pytest.mark.parametrize("kind", ["TPU v5", "TPU v5p"])
def test_v5_without_lite_is_v5p(kind: str) -> None:
    assert live_slice(fake_devices(parse_slice("v5p-2x2x1"), kind=kind)).name == "v5p-2x2x1"


def test_two_names_of_one_chip_may_mix() -> None:
    devices = fake_devices(parse_slice("v5e-2x2"))
    devices[0] = replace(devices[0], device_kind="TPU v5e")
    assert live_slice(devices).name == "v5e-2x2"


def test_coordinates_are_relative_to_the_corner() -> None:
    slice_ = parse_slice("v5e-2x4")
    devices = fake_devices(slice_, corner=(6, 4, 0))
    assert live_slice(devices) == slice_
    placed = place_on(devices, slice_, range(8))
    assert [device.coords for device in placed] == [(6 + x, 4 + y, 0) for y in range(4) for x in range(2)]


@pytest.mark.parametrize("name", NAMES)
def test_a_placement_lands_on_its_coordinates_whatever_the_ids(name: str) -> None:
    slice_ = parse_slice(name)
    positions = np.random.default_rng(3).permutation(slice_.num_devices).tolist()
    first = place_on(fake_devices(slice_, seed=1), slice_, positions)
    second = place_on(fake_devices(slice_, seed=2), slice_, positions)
    expected = [((*slice_.coords(index), 0)[:3], slice_.core(index)) for index in positions]
    for placed in (first, second):
        assert placed.shape == (slice_.num_devices,)
        assert [(device.coords, device.core_on_chip) for device in placed] == expected


@pytest.mark.parametrize(
    ("planned", "live"),
    [
        ("v5e-2x4", "v5e-4x2"),
        ("v5e-4x2", "v5e-2x4"),
        ("v6e-8x16", "v6e-16x8"),
        ("v5p-2x2x4", "v5p-4x2x2"),
        ("v5p-2x4x4", "v5p-4x4x2"),
        ("v7x-2x2x4", "v7x-2x4x2"),
    ],
)
def test_a_turned_slice_serves_the_plan_at_the_same_distances(planned: str, live: str) -> None:
    slice_, turned = parse_slice(planned), parse_slice(live)
    placed = place_on(fake_devices(turned), slice_, range(slice_.num_devices))
    assert len({device.id for device in placed}) == slice_.num_devices
    assert np.array_equal(distances_between(placed, turned), distances_planned(slice_))
    assert [device.core_on_chip for device in placed] == [slice_.core(index) for index in range(slice_.num_devices)]


def test_both_cores_of_a_chip_stay_together() -> None:
    slice_ = parse_slice("v7x-2x2x1")
    placed = place_on(fake_devices(slice_, seed=5), slice_, range(8))
    assert [(device.coords, device.core_on_chip) for device in placed] == [
        ((x, y, 0), core) for y in range(2) for x in range(2) for core in range(2)
    ]


@pytest.mark.parametrize(
    ("planned", "live", "says"),
    [
        ("v5e-16", "v5p-2x2x4", "plan is for v5e-4x4, the devices are v5p-2x2x4: another generation"),
        ("v5e-4x4", "v6e-4x4", "another generation"),
        ("v5e-4x4", "v5e-2x8", r"v5e-4x4 \(16 devices\), the devices are v5e-2x8 \(16 devices\), which is no turned"),
        ("v5e-2x4", "v5e-4x4", r"\(8 devices\), the devices are v5e-4x4 \(16 devices\)"),
        ("v5p-2x2x4", "v5p-2x4x4", "no turned view"),
    ],
)
def test_another_slice_is_refused_by_name(planned: str, live: str, says: str) -> None:
    slice_ = parse_slice(planned)
    with pytest.raises(WrongDevices, match=says):
        place_on(fake_devices(parse_slice(live)), slice_, range(slice_.num_devices))


def test_missing_chips_are_named() -> None:
    devices = [device for device in fake_devices(parse_slice("v5e-4x4")) if device.coords != (2, 1, 0)]
    with pytest.raises(WrongDevices, match=r"15 devices of v5e are no full rectangle.*4x4x1.*1 are missing \(2,1,0\)"):
        live_slice(devices)


def test_a_missing_core_is_named() -> None:
    devices = [
        device
        for device in fake_devices(parse_slice("v7x-2x2x1"))
        if (device.coords, device.core_on_chip) != ((1, 0, 0), 1)
    ]
    with pytest.raises(WrongDevices, match=r"missing \(1,0,0 core 1\)"):
        live_slice(devices)


@pytest.mark.parametrize("name", ["v4-2x2x4", "v5p-2x2x4", "v6e-4x4", "v5e-4x4", "v7x-2x2x2"])
def test_a_subset_with_holes_is_refused_with_the_reason(name: str) -> None:
    slice_ = parse_slice(name)
    corners = [device for device in fake_devices(slice_) if all(c % 3 == 0 for c in device.coords)]
    ends = corners if len(slice_.shape) == 2 else [d for d in fake_devices(slice_) if sum(d.coords) % 2 == 0]
    with pytest.raises(WrongDevices, match="no full rectangle of chips"):
        live_slice(ends)


def test_many_missing_chips_are_counted() -> None:
    ends = [device for device in fake_devices(parse_slice("v6e-16x16")) if device.coords in ((0, 0, 0), (15, 15, 0))]
    with pytest.raises(WrongDevices, match=r"254 are missing .* and 248 more"):
        live_slice(ends)


def test_a_contiguous_subset_is_a_slice_of_its_own() -> None:
    part = [device for device in fake_devices(parse_slice("v5p-4x4x4")) if device.coords[2] < 2]
    assert live_slice(part).name == "v5p-4x4x2"
    assert live_slice(part).wrap == (False, False, False)


@pytest.mark.parametrize(
    ("name", "inside", "legal"),
    [
        ("v7x-2x2x2", lambda x, y, z: x == 0, False),  # half of each of two hosts
        ("v7x-2x2x2", lambda x, y, z: z == 1, True),  # one whole host
        ("v7x-2x2x2", lambda x, y, z: (x, z) == (0, 0), True),  # half of one host
        ("v5e-4x4", lambda x, y, z: x in (1, 2) and y < 2, False),  # halves of two hosts
        ("v5e-4x4", lambda x, y, z: y >= 2, True),  # two whole hosts
        ("v5e-4x4", lambda x, y, z: x < 3 and y < 2, False),
    ],
)
def test_subslices_keep_to_host_boundaries(name: str, inside: object, legal: bool) -> None:
    part = [device for device in fake_devices(parse_slice(name)) if inside(*device.coords)]  # type: ignore[operator]
    if legal:
        assert live_slice(part).num_devices == len(part)
    else:
        with pytest.raises(WrongDevices, match=r"cut through some.*hosts of v\w+ are 2x2x1 chips; take whole hosts"):
            live_slice(part)


def test_a_slice_of_one_large_host_is_whole() -> None:
    slice_ = parse_slice("v5e-2x4")
    assert live_slice(fake_devices(slice_, one_host=True)) == slice_


def test_a_device_listed_twice_is_named() -> None:
    devices = fake_devices(parse_slice("v5e-2x2"))
    with pytest.raises(WrongDevices, match="listed twice"):
        live_slice([*devices, devices[0]])


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([], "no devices"),
        ([FakeDevice(id=0, coords=(0, 0, 0), device_kind="TPU v3")], "no TPU generation has device kind 'TPU v3'"),
        (
            [
                FakeDevice(id=0, coords=(0, 0, 0)),
                FakeDevice(id=1, coords=(1, 0, 0), device_kind="TPU v6 lite"),
            ],
            "several generations: TPU v5 lite, TPU v6 lite",
        ),
        (
            [FakeDevice(id=0, coords=(0, 0, 0)), FakeDevice(id=1, coords=(0, 0, 0), slice_index=1)],
            "devices of 2 slices",
        ),
        ([FakeDevice(id=0, coords=(0, 0, 0), core_on_chip=1, device_kind="TPU v4")], "both cores fused"),
        ([FakeDevice(id=i, coords=(0, 0, i)) for i in range(2)], "v5e has 2-D grids"),
    ],
)
def test_what_is_no_slice_is_refused(devices: list[FakeDevice], says: str) -> None:
    with pytest.raises(WrongDevices, match=says):
        live_slice(devices)


def test_cpu_devices_are_no_slice_but_stand_in_for_one() -> None:
    devices = jax.devices("cpu")
    slice_ = parse_slice("v5e-2x4")
    with pytest.raises(WrongDevices, match="no TPU generation has device kind 'cpu'"):
        live_slice(devices)
    placed = place_on(devices[::-1], slice_, [7, 0, 1, 2, 3, 4, 5, 6])
    assert list(placed) == [devices[i] for i in (7, 0, 1, 2, 3, 4, 5, 6)]
    with pytest.raises(WrongDevices, match="there are 8 CPU devices"):
        place_on(devices, parse_slice("v5e-4x4"), range(16))


@given(subset=st.sets(st.integers(0, 31), min_size=1))
def test_any_subset_is_a_slice_or_refused(subset: set[int]) -> None:
    slice_ = parse_slice("v7x-2x4x2")
    devices = sorted(fake_devices(slice_), key=lambda device: (device.coords, device.core_on_chip))
    part = [devices[index] for index in subset]
    try:
        found = live_slice(part)
    except WrongDevices:
        return
    assert found.num_devices == len(part)
    assert len(set(place_on(part, found, range(len(part))))) == len(part)
