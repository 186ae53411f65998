"""The small parts of the transformer: linear layers, norms, activations and the sinusoidal embedding.

Products take operands in the dtype of the weights and accumulate in float32; norms are computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

Tree = dict[str, Any]


def product(subscripts: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Returns the float32 product of `x`, brought to the kernel's dtype, and the kernel."""
    return jnp.einsum(subscripts, x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def linear(x: jax.Array, weights: Tree) -> jax.Array:
    """Applies ``[in, out]`` weights and a bias to the last dimension; returns float32."""
    return product("...i,io->...o", x, weights["kernel"]) + weights["bias"].astype(jnp.float32)


def into_heads(x: jax.Array, weights: Tree) -> jax.Array:
    """Maps ``[tokens, in]`` to float32 ``[..., heads, tokens, head_dim]`` with ``[..., heads, in, head_dim]``
    weights."""
    out = product("ti,...hik->...htk", x, weights["kernel"])
    return out + weights["bias"].astype(jnp.float32)[..., None, :]


def layer_norm(x: jax.Array, eps: float) -> jax.Array:
    """Normalizes the last dimension in float32, without scale and bias.

    Both moments come from one pass, which the compiler joins to the product before; the mean of a residual stream is
    not so large against its spread that float32 would lose the variance.
    """
    x = x.astype(jnp.float32)
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.maximum(jnp.square(x).mean(axis=-1, keepdims=True) - jnp.square(mean), 0.0)
    return (x - mean) * jax.lax.rsqrt(variance + eps)


def affine_norm(x: jax.Array, weights: Tree, eps: float) -> jax.Array:
    """Normalizes the last dimension in float32, then scales and shifts."""
    return layer_norm(x, eps) * weights["scale"] + weights["bias"]


def sinusoid(position: jax.Array, width: int) -> jax.Array:
    """Embeds a scalar: cosines, then sines, of frequencies from 1 down to 1 / 10000; float32 ``[width]``."""
    frequencies = jnp.exp(-math.log(10000.0) * jnp.arange(width // 2, dtype=jnp.float32) / (width // 2))
    angles = position.astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
