"""Attention of one shard: the splash kernel or plain products, and how queries meet the keys of other shards.

`ulysses` exchanges tokens for heads before and after; `context` gathers keys and values; `ring` passes them from shard
to shard and merges partial results with their log-sum-exp (online softmax). They combine, except `ring` with `context`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as splash_mask

from adapters.models.wan.axes import CONTEXT, RING, ULYSSES, Axes
from adapters.models.wan.tokens import LANES, Blocks, Tokens, round_up

Partial = tuple[jax.Array, jax.Array]
"""Attention over some of the keys, ``[heads, queries, head_dim]``, and its log-sum-exp, float32 ``[heads,
queries]``."""


@dataclass(frozen=True, slots=True)
class _Below:
    """Mask of the keys below a limit; the kernel evaluates it on indices, so that no mask is ever built."""

    limit: int

    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        return keys < self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend:
    """Attention of queries ``[heads, queries, head_dim]`` to keys and values of one shard, with scale 1.

    Attributes:
        kernel: whether to run the splash kernel where the program is lowered for a TPU; elsewhere products are plain.
        blocks: of the kernel; they divide the numbers of queries and keys.
    """

    kernel: bool
    blocks: Blocks

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array, *, valid: int) -> jax.Array:
        """Attends to the first `valid` keys."""
        if not self.kernel:
            return plain(q, k, v, valid)[0]
        out: jax.Array = jax.lax.platform_dependent(
            q,
            k,
            v,
            tpu=lambda q, k, v: splash_attention(q, k, v, valid, self.blocks),
            default=lambda q, k, v: plain(q, k, v, valid)[0],
        )
        return out

    def partial(self, q: jax.Array, k: jax.Array, v: jax.Array, *, valid: int | jax.Array) -> Partial:
        """Attends to the first `valid` keys, a traced number if need be, and keeps the log-sum-exp."""
        if not self.kernel:
            return plain(q, k, v, valid)
        out: Partial = jax.lax.platform_dependent(
            q,
            k,
            v,
            tpu=lambda q, k, v: splash_partial(q, k, v, valid, self.blocks),
            default=lambda q, k, v: plain(q, k, v, valid),
        )
        return out


def splash_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, valid: int, blocks: Blocks, *, interpret: bool = False
) -> jax.Array:
    """Attends to the first `valid` keys with the splash kernel; `interpret` runs it on any backend, slowly."""
    out: jax.Array = _splash(q.shape[1], k.shape[1], valid, blocks, residuals=False, interpret=interpret)(q, k, v)
    return out


def splash_partial(
    q: jax.Array, k: jax.Array, v: jax.Array, valid: int | jax.Array, blocks: Blocks, *, interpret: bool = False
) -> Partial:
    """Does the same and returns the log-sum-exp too. A traced `valid` costs segment ids."""
    queries, keys = q.shape[1], k.shape[1]
    segments = None
    if not isinstance(valid, int):
        segments = splash.SegmentIds(q=jnp.zeros(queries, jnp.int32), kv=(jnp.arange(keys) >= valid).astype(jnp.int32))
        valid = keys
    kernel = _splash(queries, keys, valid, blocks, residuals=True, interpret=interpret)
    out, (logsumexp,) = kernel(q, k, v, segments)
    return out, logsumexp


def _splash(queries: int, keys: int, valid: int, blocks: Blocks, *, residuals: bool, interpret: bool) -> Any:
    # The mask's description is given to the kernel directly: working it out from a mask of 75600 x 75600 takes seconds,
    # and every row is the same.
    masked = valid < keys
    info = splash_mask.MaskInfo(
        data_next=None,
        mask_next=None,
        block_mask=None,
        partial_mask_blocks=None,
        q_sequence=np.zeros(queries, np.int32) if masked else None,
    )
    return splash.SplashAttentionKernel(
        info,
        None,
        None,
        is_mqa=False,
        block_sizes=splash.BlockSizes(block_q=blocks.query, block_kv=blocks.keys, block_kv_compute=blocks.compute),
        save_residuals=residuals,
        mask_value=splash.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=_Below(valid) if masked else None,
        interpret=interpret,
    )


def plain(q: jax.Array, k: jax.Array, v: jax.Array, valid: int | jax.Array) -> Partial:
    """Attends to the first `valid` keys with plain products."""
    logits = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32)
    if not isinstance(valid, int) or valid < k.shape[1]:
        logits = jnp.where(jnp.arange(k.shape[1]) < valid, logits, splash.DEFAULT_MASK_VALUE)
    top = logits.max(axis=-1, keepdims=True)
    weights = jnp.exp(logits - top)
    total = weights.sum(axis=-1, keepdims=True)
    out = jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32) / total
    return out.astype(q.dtype), (top + jnp.log(total))[..., 0]


def _merge(first: Partial, second: Partial) -> Partial:
    """Joins attention over two sets of keys."""
    (a, a_sum), (b, b_sum) = first, second
    both = jnp.logaddexp(a_sum, b_sum)
    a_share, b_share = jnp.exp(a_sum - both)[..., None], jnp.exp(b_sum - both)[..., None]
    return (a * a_share + b * b_share).astype(a.dtype), both


def self_attention(q: jax.Array, k: jax.Array, v: jax.Array, tokens: Tokens, *, kernel: bool) -> jax.Array:
    """Attends among all tokens of a video. Everything is ``[local heads, local tokens, head_dim]``."""
    axes, attend = tokens.axes, Attend(kernel=kernel, blocks=tokens.blocks)
    q, k, v = (tokens_for_heads(x, axes) for x in (q, k, v))
    k, v = (axes.gather(x, CONTEXT, dimension=1)[:, : tokens.keys] for x in (k, v))
    rings = axes.size(RING)
    if rings == 1:
        out = attend(q, k, v, valid=tokens.per_ring)
    else:

        def attend_to(k: jax.Array, v: jax.Array, shard: jax.Array) -> Partial:
            return attend.partial(q, k, v, valid=tokens.valid(shard))

        meet, merge = jax.jit(attend_to), jax.jit(_merge)  # traced once for all steps of the ring
        position = jnp.asarray(axes.index(RING))
        partial: Partial | None = None
        for step in range(rings):
            after = [axes.shift(x, RING) for x in (k, v)] if step + 1 < rings else [k, v]
            met = meet(k, v, (position - step) % rings)
            # The compiler takes a kernel for free and would make all exchanges first and wait for them. Tied together,
            # each exchange runs beside the kernel of its step.
            (k, v), met = jax.lax.optimization_barrier((after, met))
            partial = met if partial is None else merge(partial, met)
        assert partial is not None
        out = partial[0]
    return heads_for_tokens(out, axes)


def tokens_for_heads(x: jax.Array, axes: Axes) -> jax.Array:
    """Turns ``[heads, tokens, width]`` of some tokens into the tokens of all shards and a part of the heads.

    Only leading dimensions move, so that no tile is taken apart.
    """
    parts = axes.size(ULYSSES)
    heads, count, width = x.shape
    x = axes.exchange(x, ULYSSES).reshape(parts, heads // parts, count, width)
    return x.swapaxes(0, 1).reshape(heads // parts, parts * count, width)


def heads_for_tokens(x: jax.Array, axes: Axes) -> jax.Array:
    """Undoes `tokens_for_heads`."""
    parts = axes.size(ULYSSES)
    heads, count, width = x.shape
    x = x.reshape(heads, parts, count // parts, width).swapaxes(0, 1)
    return axes.exchange(x.reshape(parts * heads, count // parts, width), ULYSSES)


def cross_attention(q: jax.Array, k: jax.Array, v: jax.Array, *, kernel: bool) -> jax.Array:
    """Attends to a short sequence that every shard holds whole: ``[local heads, keys, head_dim]``."""
    queries, keys = q.shape[1], k.shape[1]
    padding = [(0, 0), (0, round_up(keys, LANES) - keys if kernel else 0), (0, 0)]
    k, v = jnp.pad(k, padding), jnp.pad(v, padding)
    query = next(size for size in (1024, 512, 256, LANES, queries) if queries % size == 0)
    attend = Attend(kernel=kernel, blocks=Blocks(query=query, keys=k.shape[1], compute=k.shape[1]))
    return attend(q, k, v, valid=keys)
