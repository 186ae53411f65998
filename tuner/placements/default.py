"""JAX's default device order, without JAX.

Follows `jax.experimental.mesh_utils.create_device_mesh` of jax 0.10.2 and 0.12: a handler for small slices of some
generations, else an assignment of whole physical axes to mesh axes, greedy from the last mesh axis, else (where
splitting is allowed) the same with factors of physical axes. Where it refuses a mesh, people list the devices
row-major, and so does this module, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.network.fabric import Ints
from tuner.placements.placement import Placement
from tuner.slices.slice import Slice

RING_2X2 = (0, 1, 3, 2)
RING_4X4 = (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4)
TRAY_8 = (0, 1, 2, 3, 7, 6, 5, 4)
V5P_2X2X2 = (0, 1, 3, 2, 6, 7, 5, 4)
V7X_TRAY = (0, 1, 2, 3, 6, 7, 4, 5)

NEWER = (0, 11)
"""From here on the core axis of v7x goes to the last mesh axes first, and v5p has its handler under the name that its
devices have. Compared on 0.10.2 and 0.12.0; between them is a guess."""


def row_major(slice_: Slice) -> Placement:
    """Returns the placement that lists chips with the last coordinate fastest, as a reshaped grid does."""
    grid = _physical(slice_)
    return Placement(devices=tuple(grid.ravel().tolist()), description="row-major")


def jax_default(slice_: Slice, layout: Layout, *, split: bool = True, jax: tuple[int, int] = (0, 12)) -> Placement:
    """Returns JAX's default order for a layout's mesh.

    Args:
        slice_: the slice.
        layout: its sizes must multiply to the number of devices, else InvalidValue.
        split: whether to try with split physical axes where whole ones do not fit (`allow_split_physical_axes`).
        jax: major and minor version.
    """
    if layout.devices != slice_.num_devices:
        raise InvalidValue(f"{layout} is for {layout.devices} devices, {slice_.name} has {slice_.num_devices}")
    handled = _handled(slice_, layout.shape, jax)
    if handled is not None:
        return Placement(devices=handled, description="JAX's default order")
    physical = _physical(slice_)
    whole = _whole_axes(physical, layout.shape, core_first=slice_.cores == 2 and jax >= NEWER)
    if whole is not None:
        return Placement(devices=whole, description="JAX's default order")
    divided = _split_axes(physical, layout.shape) if split else None
    if divided is not None:
        return Placement(devices=divided, description="JAX's default order, physical axes split")
    fallback = row_major(slice_)
    return Placement(devices=fallback.devices, description="row-major, as JAX has no default order for this mesh")


def _physical(slice_: Slice) -> Ints:
    """Returns device indices as [x, y, z], with the cores as a fourth axis where a chip has two devices."""
    shape = (*slice_.shape, 1)[:3]
    cores = (slice_.cores,) if slice_.cores > 1 else ()
    grid = np.arange(slice_.num_devices).reshape(*reversed(shape), *cores)
    return grid.transpose(2, 1, 0, *range(3, 3 + len(cores)))


def _handled(slice_: Slice, mesh: Sequence[int], jax: tuple[int, int]) -> tuple[int, ...] | None:
    """Returns the fixed orders of small slices; the mesh only reshapes them."""
    shape, devices = slice_.shape, slice_.num_devices
    match slice_.generation_name:
        case "v5e" | "v6e":
            if shape == (2, 2):
                return RING_2X2
            if devices == 8:
                return TRAY_8
            if shape == (4, 4) and max(mesh) == 16:
                return RING_4X4
        case "v5p":
            if shape == (2, 2, 2) and jax >= NEWER:
                return V5P_2X2X2
        case "v7x":
            if devices % 8 == 0 and devices <= 32 and max(shape[:2]) <= 2:
                return tuple(start + k for start in range(0, devices, 8) for k in V7X_TRAY)
    return None


def _whole_axes(physical: Ints, mesh: Sequence[int], *, core_first: bool) -> tuple[int, ...] | None:
    """Gives each mesh axis, last first, as many whole physical axes as multiply to its size; None if one gets none."""
    left = list(physical.shape)
    assigned: list[tuple[int, ...]] = [()] * len(mesh)
    for axis in reversed(range(len(mesh))):
        for count in range(len(left), 0, -1):
            choices = [c for c in combinations(range(len(left)), count) if math.prod(left[i] for i in c) == mesh[axis]]
            if choices:
                assigned[axis] = min(choices, key=_core_rank) if core_first else choices[0]
                break
        for taken in assigned[axis]:
            left[taken] = 0
        if not assigned[axis] and mesh[axis] > 1:
            return None
    order = [taken for axis in assigned for taken in axis]
    if len(order) != physical.ndim:  # an axis of one chip that no mesh axis took changes nothing
        order += [axis for axis in range(physical.ndim) if axis not in order]
    return tuple(physical.transpose(order).ravel().tolist())


def _core_rank(axes: tuple[int, ...]) -> tuple[int, int]:
    rank = {0: 1, 1: 2, 2: 3, 3: 0}
    return min(rank[axis] for axis in axes), sum(rank[axis] for axis in axes)


def _split_axes(physical: Ints, mesh: Sequence[int]) -> tuple[int, ...] | None:
    """Gives each mesh axis, last first, the factors of physical axes that JAX's rules prefer."""
    shape = physical.shape
    assignment: NDArray[np.int64] = np.ones((len(shape), len(mesh)), np.int64)
    for axis in reversed(range(len(mesh))):
        taken = assignment.prod(axis=1)
        options = [
            option
            for option in product(*(_divisors(size // used) for size, used in zip(shape, taken.tolist(), strict=True)))
            if math.prod(option) == mesh[axis]
        ]
        if not options:
            return None
        assignment[:, axis] = max(options, key=lambda option: _preference(option, shape, taken.tolist()))
    if assignment.prod(axis=1).tolist() != list(shape):
        return None
    pieces = physical.reshape(assignment.ravel().tolist())
    count = len(mesh)
    order = [place * count + axis for axis in range(count) for place in range(len(shape))]
    return tuple(pieces.transpose(order).ravel().tolist())


def _divisors(size: int) -> list[int]:
    return [d for d in range(1, size + 1) if size % d == 0]


def _preference(
    option: tuple[int, ...], shape: tuple[int, ...], taken: list[int]
) -> tuple[int, int, int, tuple[int, ...]]:
    """Ranks assignments as JAX does. Its third rule prefers axes that are in use already, whatever its comment says."""
    whole = [size for size, full in zip(option, shape, strict=True) if size == full]
    shared = math.prod(size for size, used in zip(option, taken, strict=True) if used > 1)
    return math.prod(whole), sum(size > 1 for size in whole), shared, option
