"""Rotary position embedding over time, height and width.

Wan rotates interleaved pairs of channels. Here the channels of queries and keys are permuted when weights are loaded,
so that the two halves of a head are rotated against each other: products of queries and keys do not change, and a
rotation by half a head is one lane rotation instead of a shuffle.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from adapters.models.wan.config import WanConfig


def half_split(head_dim: int) -> np.ndarray:
    """Returns the channels of a head in the order used here: the even ones, then the odd ones."""
    return np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])


def _angles(config: WanConfig, grid: tuple[int, int, int]) -> list[np.ndarray]:
    """Returns ``[positions, pairs]`` angles of each direction; height and width get 2 * (head_dim // 6) channels
    each."""
    side = 2 * (config.head_dim // 6)
    widths = (config.head_dim - 2 * side, side, side)
    out = []
    for positions, width in zip(grid, widths, strict=True):
        frequencies = config.rope_theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
        out.append(np.outer(np.arange(positions, dtype=np.float64), frequencies))
    return out


def tables(config: WanConfig, grid: tuple[int, int, int]) -> tuple[jax.Array, jax.Array]:
    """Returns cosines and signed sines, float32 ``[tokens, head_dim]``.

    Angles are computed in float64 for one direction at a time and spread over the grid on the device, so that the
    program holds constants of a few kilobytes and no transcendental of a large angle.
    """

    def spread(function: np.ufunc, sign: float) -> jax.Array:
        parts = []
        for direction, angles in enumerate(_angles(config, grid)):
            shape = [1, 1, 1, angles.shape[1]]
            shape[direction] = angles.shape[0]
            part = jnp.asarray(function(angles), dtype=jnp.float32).reshape(shape)
            parts.append(jnp.broadcast_to(part, (*grid, angles.shape[1])))
        half = jnp.concatenate(parts, axis=-1)
        return jnp.concatenate([sign * half, half], axis=-1).reshape(-1, config.head_dim)

    return spread(np.cos, 1.0), spread(np.sin, -1.0)


def rotate(x: jax.Array, scale: jax.Array, cosines: jax.Array, sines: jax.Array) -> jax.Array:
    """Scales ``[heads, tokens, head_dim]`` by ``[heads, head_dim]`` and rotates it by tables ``[tokens, head_dim]``.

    The halves of a head are exchanged by a product with a permutation, which is exact in any dtype: the matrix unit has
    time for it, where a shift of lanes would be a pass over memory of its own. Returns float32.
    """
    half = x.shape[-1] // 2
    exchange = jnp.asarray(np.roll(np.eye(2 * half), half, axis=1), dtype=x.dtype)
    exchanged = jnp.einsum("htk,kl->htl", x, exchange, preferred_element_type=jnp.float32)
    here, there = scale[:, None, :], jnp.roll(scale, half, axis=-1)[:, None, :]
    return x.astype(jnp.float32) * (here * cosines) + exchanged * (there * sines)
