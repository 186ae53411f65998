"""How the tokens of a video are padded and split over the mesh, once per step.

Ring shards come first: every ring shard holds an equal share of the real tokens, followed by its own padding, so that
the padded keys of every ring step sit at the same place and the mask is static. Inside of a ring shard, tokens are
split over `context` and then `ulysses`. All kernel blocks divide what they run over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from adapters.models.wan.axes import CONTEXT, RING, TOKENS, ULYSSES, Axes
from tuner.errors import InvalidValue

LANES = 128
"""Width of a vector register; kernel blocks along keys are multiples of it."""


def round_up(value: int, step: int) -> int:
    """Returns the least multiple of `step` that is not below `value`."""
    return -(-value // step) * step


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Attention block sizes in tokens: queries, keys fetched at once, keys computed at once."""

    query: int
    keys: int
    compute: int

    def __post_init__(self) -> None:
        if min(self.query, self.keys, self.compute) < 1 or self.keys % self.compute:
            raise InvalidValue(f"blocks {self} are not positive with keys a multiple of compute")

    @classmethod
    def parse(cls, text: str) -> Blocks:
        """Reads ``query,keys,compute``. Raises InvalidValue for anything else."""
        try:
            query, keys, compute = (int(part) for part in text.split(","))
        except ValueError:
            raise InvalidValue(f"blocks {text!r} are not query,keys,compute, for example 512,1024,512") from None
        return cls(query=query, keys=keys, compute=compute)

    def within(self, queries: int, keys: int) -> Blocks:
        """Returns these blocks, made smaller where there are fewer queries or keys than a block takes."""
        query = min(self.query, round_up(queries, min(LANES, self.query)))
        fetched = min(self.keys, round_up(keys, min(LANES, self.compute)))
        return Blocks(query=query, keys=fetched, compute=math.gcd(fetched, self.compute))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The split of one video's tokens.

    Attributes:
        real: tokens of the video.
        per_ring: real tokens of a ring shard; the last ones may hold fewer.
        padded: tokens of a ring shard with padding.
        blocks: attention blocks, made to fit.
        axes: of the mesh.
    """

    real: int
    per_ring: int
    padded: int
    blocks: Blocks
    axes: Axes

    @classmethod
    def split(cls, real: int, axes: Axes, blocks: Blocks) -> Tokens:
        """Splits `real` tokens with the least padding that shards and blocks allow."""
        per_ring = -(-real // axes.size(RING))
        context, ulysses = axes.size(CONTEXT), axes.size(ULYSSES)
        blocks = blocks.within(-(-per_ring // context), per_ring)
        unit = math.lcm(context * blocks.query, context * ulysses * min(LANES, blocks.query))
        padded = round_up(round_up(per_ring, blocks.keys), unit)
        return cls(real=real, per_ring=per_ring, padded=padded, blocks=blocks, axes=axes)

    @property
    def total(self) -> int:
        """Tokens of all shards, padding included."""
        return self.padded * self.axes.size(RING)

    @property
    def local(self) -> int:
        """Tokens of one shard, padding included."""
        return self.total // self.axes.size(*TOKENS)

    @property
    def even(self) -> bool:
        """Whether every ring shard holds the same number of real tokens."""
        return self.per_ring * self.axes.size(RING) == self.real

    @property
    def keys(self) -> int:
        """Keys of a ring shard that attention runs over: whole blocks that hold a real key."""
        return round_up(self.per_ring, self.blocks.keys)

    def valid(self, shard: jax.Array | int) -> jax.Array | int:
        """Returns the real keys of a ring shard: a number where all shards agree, else a traced one."""
        if self.even:
            return self.per_ring
        return jnp.clip(self.real - shard * self.per_ring, 0, self.per_ring)

    def shard(self, x: jax.Array) -> jax.Array:
        """Pads ``[real, ...]`` and returns this shard's ``[local, ...]``."""
        rings, tail = self.axes.size(RING), [(0, 0)] * (x.ndim - 1)
        x = jnp.pad(x, [(0, self.per_ring * rings - self.real), *tail])
        x = x.reshape(rings, self.per_ring, *x.shape[1:])
        x = jnp.pad(x, [(0, 0), (0, self.padded - self.per_ring), *tail]).reshape(self.total, *x.shape[2:])
        if self.local == self.total:
            return x
        return jax.lax.dynamic_slice_in_dim(x, self.axes.index(*TOKENS) * self.local, self.local)

    def whole(self, x: jax.Array) -> jax.Array:
        """Gathers shards ``[local, ...]`` and trims the padding: ``[real, ...]``."""
        x = self.axes.gather(x, *TOKENS, dimension=0)
        x = x.reshape(self.axes.size(RING), self.padded, *x.shape[1:])[:, : self.per_ring]
        return x.reshape(-1, *x.shape[2:])[: self.real]
