"""Slices as JAX topologies, without a TPU: devices to compile for, and meshes over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies

from tuner.errors import InvalidValue, ToolchainMissing
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.slices.hosts import host_bounds
from tuner.slices.slice import Slice


def topology_arguments(slice_: Slice) -> dict[str, Any]:
    """Returns the keyword arguments of ``get_topology_desc`` for a slice.

    Bounds and wraparound are lists of three whole numbers. Both are always given: the compiler wraps no axis by
    default, and the libtpu of jax 0.10 does not cut the host to a slice of one chip by itself. A twisted torus is
    in the name: libtpu 0.0.42.1 and 0.0.50.1 read ``v5:4x4x8_twisted``, and all-reduce over it by ``TwistedTorusND``.
    """
    return {
        "platform": "tpu",
        "topology_name": f"{slice_.generation.topology_prefix}:{'x'.join(map(str, slice_.shape))}"
        + ("_twisted" if slice_.twisted else ""),
        "chip_config_name": slice_.generation.chip_config,
        "chips_per_host_bounds": list(host_bounds(slice_)),
        "wrap": [int(wraps) for wraps in (*slice_.wrap, False)[:3]],
    }


def topology(slice_: Slice) -> Any:
    """Returns the ``TopologyDescription`` of a slice, whose devices programs can be compiled for.

    Raises ToolchainMissing if libtpu is not installed, and InvalidValue with the compiler's words if it refuses the
    shape.
    """
    try:
        return topologies.get_topology_desc(**topology_arguments(slice_))
    except jax.errors.JaxRuntimeError as error:
        if "INVALID_ARGUMENT" in str(error):
            raise InvalidValue(f"the compiler refuses {slice_.name}: {error}") from error
        raise
    except RuntimeError as error:
        if "TPU support not installed" in str(error):
            raise ToolchainMissing(
                "compiling for a TPU needs libtpu, which is not installed: pip install 'jax[tpu]' (no TPU is needed)"
            ) from error
        raise


def device_position(device: Any, slice_: Slice) -> int:
    """Returns the slice's device index of a JAX device by its coordinates and core, never by its id."""
    coords = tuple(device.coords)[: len(slice_.shape)]
    return slice_.device(coords, int(getattr(device, "core_on_chip", 0)))


def devices_in_order(slice_: Slice, devices: Sequence[Any]) -> list[Any]:
    """Sorts the JAX devices of a topology into the order of the slice's device indices.

    Raises InvalidValue if they are not exactly the devices of the slice.
    """
    found = {device_position(device, slice_): device for device in devices}
    if len(found) != len(devices) or len(found) != slice_.num_devices:
        raise InvalidValue(
            f"{len(devices)} devices at {len(found)} positions do not make up {slice_.name}, "
            f"which has {slice_.num_devices}"
        )
    return [found[index] for index in range(slice_.num_devices)]


def cpu_devices(slice_: Slice) -> list[Any]:
    """Returns the CPU devices of a slice of them. Raises InvalidValue if this process was not started with enough."""
    devices = sorted(jax.devices("cpu"), key=lambda device: int(device.id))
    if len(devices) < slice_.num_devices:
        raise InvalidValue(
            f"{slice_.name} needs {slice_.num_devices} CPU devices and this process has {len(devices)}; "
            "JAX_NUM_CPU_DEVICES says how many it starts with"
        )
    return devices[: slice_.num_devices]


def auto_mesh(devices: Any, layout: Layout) -> jax.sharding.Mesh:
    """Returns the mesh of a layout over devices listed by flattened mesh position; every axis is of type Auto.

    The type is always given, because ``jax.make_mesh`` has made axes Explicit by default since 0.9.
    """
    grid = np.empty(len(devices), dtype=object)
    grid[:] = list(devices)
    types = (jax.sharding.AxisType.Auto,) * len(layout.axes)
    return jax.sharding.Mesh(grid.reshape(layout.shape), layout.axis_names, axis_types=types)


def mesh_for(slice_: Slice, layout: Layout, placement: Placement | None = None) -> jax.sharding.Mesh:
    """Returns the mesh of a layout on a slice to compile for.

    Mesh position ``k`` (row-major over the layout's axes) is the slice's device ``placement.devices[k]``, or device
    ``k`` without a placement; a slice of CPU devices takes this process's, in the order of their ids. Raises as
    `topology`, and InvalidValue if the layout has another number of devices.
    """
    if layout.devices != slice_.num_devices:
        raise InvalidValue(f"layout {layout} has {layout.devices} devices, {slice_.name} has {slice_.num_devices}")
    has_links = slice_.generation.has_links
    devices = devices_in_order(slice_, topology(slice_).devices) if has_links else cpu_devices(slice_)
    order = range(len(devices)) if placement is None else placement.devices
    if len(order) != len(devices):
        raise InvalidValue(f"placement covers {len(order)} devices, {slice_.name} has {len(devices)}")
    return auto_mesh([devices[index] for index in order], layout)
