"""The fabric of a slice, plain or twisted."""

from __future__ import annotations

from functools import lru_cache

from tuner.network.fabric import Fabric
from tuner.network.twisted import TwistedFabric
from tuner.slices.slice import Slice


@lru_cache(maxsize=64)
def fabric(slice_: Slice) -> Fabric:
    """Returns the fabric of a slice, built once."""
    return TwistedFabric(slice_) if slice_.twisted else Fabric(slice_)
