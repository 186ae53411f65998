"""Limited routing: v5e slices of more than 16 chips.

There a chip's routing table has entries for chips in its own row or column at distance 1, 2, 4 and 8, the short way
around on a closed axis (`routing_strategy: ROUTING_NHOP` in libtpu 0.0.50.1; jax documents "power-of-2 offset"). What
needs other routes is refused or relayed:

- all-reduce, reduce-scatter and all-gather compile only over evenly strided rectangles (an all-gather aborts the
  compiler);
- an all-to-all or permute with a pair out of reach is stored and forwarded in a schedule of synchronous one-hop steps.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.slices.slice import Slice

DISTANCES = (1, 2, 4, 8)

STEPS_OF_HOP = 4
"""Steps of the schedule that a relayed hop costs (net_router_emitter's log, v5e 8x8)."""

SCHEDULE_LOSS = 1.16
"""Steps of a schedule over transfers on its busiest link where that decides (148 to 128 for all 64 chips of v5e
8x8)."""


def is_limited(slice_: Slice) -> bool:
    """Returns whether a slice has limited routing."""
    return slice_.generation_name == "v5e" and slice_.num_chips > 16


@lru_cache(maxsize=16)
def reachable(slice_: Slice) -> NDArray[np.bool_]:
    """Returns which device can send to which directly [num_devices, num_devices]: all where routing is not limited."""
    devices = np.arange(slice_.num_devices)
    if not is_limited(slice_):
        return np.ones((len(devices), len(devices)), bool)
    apart, stride = [], slice_.cores
    for size, wrap in zip(slice_.shape, slice_.wrap, strict=True):
        position = devices // stride % size
        distance = np.abs(position[:, None] - position)
        apart.append(np.minimum(distance, size - distance) if wrap else distance)
        stride *= size
    along = np.sum(apart, axis=0)
    straight = np.count_nonzero(apart, axis=0) == 1
    return np.asarray(straight & np.isin(along, DISTANCES) | np.eye(len(devices), dtype=bool))
