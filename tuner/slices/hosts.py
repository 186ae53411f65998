"""Hosts of a slice: which chips share a virtual machine, and so a JAX process.

The compiler's topologies give every host the generation's bounds, 2x2x1 chips. A live v5e or v6e may also have hosts of
1 or 8 chips; what is true there is the device's own ``process_index``.
"""

from __future__ import annotations

import math

from tuner.slices.slice import Slice


def host_bounds(slice_: Slice) -> tuple[int, int, int]:
    """Returns the chips of one host along x, y, z: the generation's bounds, cut to an axis of one chip."""
    shape = (*slice_.shape, 1)[:3]
    x, y, z = (min(size, bound) for size, bound in zip(shape, slice_.generation.host_bounds, strict=True))
    return x, y, z


def host_grid(slice_: Slice) -> tuple[int, int, int]:
    """Returns the number of hosts along x, y, z; the last host of an axis may be filled in part."""
    shape = (*slice_.shape, 1)[:3]
    x, y, z = (math.ceil(size / bound) for size, bound in zip(shape, host_bounds(slice_), strict=True))
    return x, y, z


def num_hosts(slice_: Slice) -> int:
    """Returns the number of hosts."""
    return math.prod(host_grid(slice_))


def host_of(slice_: Slice, device: int) -> int:
    """Returns the host of a device index; hosts count with x fastest, as ``process_index`` does.

    Raises InvalidValue if there is no such device.
    """
    coords = (*slice_.coords(device), 0)[:3]
    host = 0
    for position, bound, hosts in reversed(list(zip(coords, host_bounds(slice_), host_grid(slice_), strict=True))):
        host = host * hosts + position // bound
    return host
