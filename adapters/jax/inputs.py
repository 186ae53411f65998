"""Arguments of a step, made on the devices: nothing large is ever on the host or crosses to a device.

Values are a hash of an element's position, so they are the same however the array is sharded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SCALAR = 1.5
"""What scalars are: neither 0 nor 1, so that no factor hides what it scales."""


def arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns arrays for abstract, sharded arguments, each under its sharding, as `filler` makes them."""
    return filler(arguments)()


def filler(arguments: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
    """Returns a compiled function that makes arrays for abstract, sharded arguments, each under its sharding.

    Floating-point values are uniform with variance 1, those of the first of several arguments, which are the weights,
    with variance 1 / rows, so that a product keeps the size of its input. Integers are 0 or 1. Scalars are `SCALAR`.
    """
    leaves, tree = jax.tree.flatten(arguments)
    weights = len(jax.tree.leaves(arguments[0])) if len(arguments) > 1 else len(leaves)

    def fill() -> Any:
        return tree.unflatten([_values(leaf, index, weight=index < weights) for index, leaf in enumerate(leaves)])

    shardings = jax.tree.map(lambda leaf: leaf.sharding, arguments)
    compiled: Callable[[], tuple[Any, ...]] = jax.jit(fill, out_shardings=shardings).lower().compile()
    return compiled


def _values(leaf: Any, salt: int, *, weight: bool) -> jax.Array:
    if not leaf.shape:
        return jnp.asarray(SCALAR).astype(leaf.dtype)
    hashed = _hashed(leaf.shape, salt)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return (hashed >> 31).astype(leaf.dtype)
    uniform = (hashed >> 8).astype(jnp.float32) * (2.0**-23) - 1
    scale = np.sqrt(3.0 / (leaf.shape[-2] if weight and len(leaf.shape) > 1 else 1))
    return (uniform * np.float32(scale)).astype(leaf.dtype)


def _hashed(shape: tuple[int, ...], salt: int) -> jax.Array:
    """Returns well mixed 32-bit numbers of the position (the finalizer of MurmurHash3, public domain)."""
    mixed = jnp.full(shape, np.uint32((salt * 0x9E3779B9 + 0x7F4A7C15) & 0xFFFFFFFF))
    for dimension in range(len(shape)):
        mixed = mixed ^ jax.lax.broadcasted_iota(jnp.uint32, shape, dimension)
        mixed = (mixed ^ (mixed >> 16)) * np.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> 13)) * np.uint32(0xC2B2AE35)
        mixed = mixed ^ (mixed >> 16)
    return mixed
