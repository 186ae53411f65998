"""Live devices: which slice they are, and how a plan made for a slice lies on them.

Devices are matched by their coordinates relative to the corner that they share, and by their core, never by their ids
or their place in ``jax.devices()``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.errors import TunerError, UnknownName
from tuner.slices.generations import Generation, generation_of_kind
from tuner.slices.shapes import default_wrap
from tuner.slices.slice import Coords, Slice

_LISTED = 6


class WrongDevices(TunerError, ValueError):
    """The live devices are not the slice that was asked for; the text says what they are and what is needed."""


def live_slice(devices: Sequence[Any]) -> Slice:
    """Returns the slice that devices make up.

    Which axes wrap cannot be seen on a device and follows from the shape; a twisted torus looks like a plain one.

    Raises:
        WrongDevices: there are none, they are no TPUs, of several generations or slices, listed twice, or not a full
            rectangle of chips made of whole hosts; the text names them.
    """
    devices = list(devices)
    if not devices:
        raise WrongDevices("no devices")
    entry = _generation(devices)
    corner, extent, by_position = _grid(devices, entry)
    shape = extent[: entry.dimensions]
    if any(size != 1 for size in extent[entry.dimensions :]):
        raise WrongDevices(f"{entry.name} has {entry.dimensions}-D grids, but the chips span {_text(extent)}")
    _check_complete(entry, corner, extent, by_position)
    _check_hosts(entry, corner, extent, devices)
    return Slice(generation_name=entry.name, shape=shape, wrap=default_wrap(entry, shape))


def place_on(devices: Sequence[Any], slice_: Slice, positions: Sequence[int]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Puts a placement for a slice onto live devices.

    A live grid that is the slice's turned (a live 4x2 for a plan for 2x4) is turned back by exchanging axes, which
    keeps every distance. CPU devices have no coordinates and no links: they stand in for any slice with as many
    devices, in the order of their ids, so that a plan can be tried without a TPU.

    Args:
        devices: live devices in any order.
        slice_: what the placement is for.
        positions: the slice's device index for each flattened mesh position.

    Returns:
        Object array of shape (len(positions),): the live device for each mesh position.

    Raises:
        WrongDevices: the devices are another slice, not a whole one, or of another generation.
    """
    devices = list(devices)
    if devices and all(getattr(device, "platform", "") == "cpu" for device in devices):
        found = _stand_ins(devices, slice_)
    else:
        found = _turned(devices, slice_)
    out = np.empty(len(positions), dtype=object)
    out[:] = [found[index] for index in positions]
    return out


def _turned(devices: list[Any], slice_: Slice) -> list[Any]:
    live = live_slice(devices)
    if live.generation_name != slice_.generation_name:
        raise WrongDevices(f"the plan is for {slice_.name}, the devices are {live.name}: another generation")
    order = next(
        (
            axes
            for axes in itertools.permutations(range(len(slice_.shape)))
            if tuple(live.shape[axis] for axis in axes) == slice_.shape
        ),
        None,
    )
    if order is None:
        raise WrongDevices(
            f"the plan is for {slice_.name} ({slice_.num_devices} devices), the devices are {live.name} "
            f"({live.num_devices} devices), which is no turned view of it"
        )
    entry = slice_.generation
    _, _, by_position = _grid(devices, entry)
    padding = (0,) * (3 - entry.dimensions)
    found = []
    for index in range(slice_.num_devices):
        planned, coords = slice_.coords(index), [0] * entry.dimensions
        for position, axis in zip(planned, order, strict=True):
            coords[axis] = position
        found.append(by_position[(*coords, *padding), slice_.core(index)])
    return found


def _stand_ins(devices: list[Any], slice_: Slice) -> list[Any]:
    found = sorted({device.id: device for device in devices}.items())
    if len(found) != slice_.num_devices or len(found) != len(devices):
        raise WrongDevices(
            f"the plan is for {slice_.name} ({slice_.num_devices} devices), there are {len(found)} CPU devices "
            f"(jax_num_cpu_devices={slice_.num_devices} makes as many)"
        )
    return [device for _, device in found]


def _generation(devices: list[Any]) -> Generation:
    kinds = sorted({str(device.device_kind) for device in devices})
    entries = []
    for kind in kinds:
        try:
            entries.append(generation_of_kind(kind))
        except UnknownName as error:
            raise WrongDevices(f"{len(devices)} devices are no slice: {error}") from None
    if len({entry.name for entry in entries}) > 1:
        raise WrongDevices(f"devices of several generations: {', '.join(kinds)}")
    slices = sorted({int(getattr(device, "slice_index", 0) or 0) for device in devices})
    if len(slices) > 1:
        raise WrongDevices(f"devices of {len(slices)} slices ({_listed(slices)}); a plan covers one")
    return entries[0]


def _grid(devices: list[Any], entry: Generation) -> tuple[Coords, Coords, dict[tuple[Coords, int], Any]]:
    """Returns the corner, the extent (both x, y, z) and the devices by (coordinates relative to the corner, core)."""
    coords = np.array([(*device.coords, 0, 0)[:3] for device in devices], dtype=int)
    low = coords.min(axis=0)
    corner = tuple(map(int, low))
    extent = tuple(map(int, coords.max(axis=0) - low + 1))
    by_position: dict[tuple[Coords, int], Any] = {}
    for device, place in zip(devices, coords - low, strict=True):
        core = int(getattr(device, "core_on_chip", 0) or 0)
        if core >= entry.devices_per_chip:
            raise WrongDevices(
                f"device {device} is core {core} of a chip; {entry.name} plans are for {entry.devices_per_chip} "
                "device(s) on each chip (both cores fused)"
            )
        key = tuple(map(int, place)), core
        if key in by_position:
            raise WrongDevices(f"devices {by_position[key]} and {device} are the same chip and core: listed twice")
        by_position[key] = device
    return corner, extent, by_position


def _check_complete(
    entry: Generation, corner: Coords, extent: Coords, by_position: dict[tuple[Coords, int], Any]
) -> None:
    cores = range(entry.devices_per_chip)
    missing = [
        (tuple(np.add(corner, place).tolist()), core)
        for place in np.ndindex(*extent)
        for core in cores
        if (place, core) not in by_position
    ]
    if missing:
        what = [f"{_text(coords, ',')}" + (f" core {core}" if len(cores) > 1 else "") for coords, core in missing]
        raise WrongDevices(
            f"{len(by_position)} devices of {entry.name} are no full rectangle of chips: they span {_text(extent)} "
            f"from {_text(corner, ',')}, where {len(missing)} are missing ({_listed(what)})"
        )


def _check_hosts(entry: Generation, corner: Coords, extent: Coords, devices: list[Any]) -> None:
    """Refuses a part of a larger slice that spans hosts and cuts through one: the runtime has no such subslice."""
    hosts = Counter(int(getattr(device, "process_index", 0) or 0) for device in devices)
    if len(hosts) == 1:
        return
    cut = [
        axis
        for axis, start, size, bound in zip("xyz", corner, extent, entry.host_bounds, strict=True)
        if start % bound or size % bound
    ]
    if cut or len(set(hosts.values())) > 1:
        raise WrongDevices(
            f"{_text(extent)} chips from {_text(corner, ',')} span {len(hosts)} hosts and cut through some"
            f"{' along ' + ', '.join(cut) if cut else ''}: hosts of {entry.name} are {_text(entry.host_bounds)} chips; "
            "take whole hosts, or chips of one"
        )


def _text(numbers: Sequence[int], separator: str = "x") -> str:
    return separator.join(map(str, numbers))


def _listed(things: Sequence[Any]) -> str:
    return ", ".join(map(str, things[:_LISTED])) + (
        f" and {len(things) - _LISTED} more" if len(things) > _LISTED else ""
    )
