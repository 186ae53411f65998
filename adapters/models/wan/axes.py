"""Collectives over named mesh axes that vanish where an axis has size 1 or there is no mesh at all.

The model is written once, for one shard. Outside of a mesh every axis has size 1 and the shard is the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
from jax import lax

DATA, CFG, RING, CONTEXT, ULYSSES, TENSOR = "data", "cfg", "ring", "context", "ulysses", "tensor"
TOKENS = (RING, CONTEXT, ULYSSES)
"""Mesh axes that split the tokens, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Sizes of the mesh axes that the running shard is part of; an absent axis has size 1."""

    sizes: Mapping[str, int] = field(default_factory=dict)

    def size(self, *names: str) -> int:
        """Returns the number of shards over some axes together."""
        return math.prod(self.sizes.get(name, 1) for name in names)

    def active(self, *names: str) -> tuple[str, ...]:
        """Returns those of the axes that really split something."""
        return tuple(name for name in names if self.size(name) > 1)

    def index(self, *names: str) -> jax.Array | int:
        """Returns the shard's position over some axes together, the first outermost."""
        active = self.active(*names)
        return lax.axis_index(active) if active else 0

    def gather(self, x: jax.Array, *names: str, dimension: int) -> jax.Array:
        """Concatenates the shards along a dimension."""
        active = self.active(*names)
        return lax.all_gather(x, active, axis=dimension, tiled=True) if active else x

    def total(self, x: jax.Array, *names: str) -> jax.Array:
        """Sums over the shards."""
        active = self.active(*names)
        return lax.psum(x, active) if active else x

    def exchange(self, x: jax.Array, name: str) -> jax.Array:
        """Passes block ``i`` of the first dimension to position ``i`` of an axis; blocks arrive in the order of
        origin."""
        return lax.all_to_all(x, name, split_axis=0, concat_axis=0, tiled=True) if self.active(name) else x

    def shift(self, x: jax.Array, name: str) -> jax.Array:
        """Passes a shard to the next position of an axis, cyclically."""
        size = self.size(name)
        return lax.ppermute(x, name, [(i, (i + 1) % size) for i in range(size)]) if size > 1 else x


UNSHARDED = Axes()
