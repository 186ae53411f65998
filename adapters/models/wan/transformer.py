"""The Wan transformer for one shard of tokens, heads, videos and guidance halves.

Written for one sequence at a time, ``[local tokens, hidden]``, and mapped over sequences where a shard holds several: a
batch of two would otherwise end in the sublanes of every tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from adapters.models.wan.attention import cross_attention, self_attention
from adapters.models.wan.axes import TENSOR, Axes
from adapters.models.wan.config import PATCH, WanConfig
from adapters.models.wan.layers import Tree, affine_norm, into_heads, layer_norm, linear, product, sinusoid
from adapters.models.wan.parameters import gatherer
from adapters.models.wan.rope import rotate, tables
from adapters.models.wan.tokens import Tokens

REFERENCE_TEXT_TOKENS = 512
"""Text tokens that diffusers assumes where image tokens come before them (``WanAttnProcessor``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """One shard's part of the transformer.

    Attributes:
        config: dimensions.
        grid: tokens along time, height and width.
        tokens: how they are split.
        gathered: mesh axes that the weights of a layer are gathered over.
        kernels: whether attention runs as the TPU kernel.
    """

    config: WanConfig
    grid: tuple[int, int, int]
    tokens: Tokens
    gathered: tuple[str, ...] = ()
    kernels: bool = False

    @property
    def axes(self) -> Axes:
        """The mesh axes of the shard."""
        return self.tokens.axes

    def __call__(
        self, params: Tree, latents: jax.Array, timestep: jax.Array, text: jax.Array, image: jax.Array | None = None
    ) -> jax.Array:
        """Predicts the flow of a shard of sequences.

        Args:
            params: local shards of the tree of `parameters.leaves`.
            latents: ``[videos, in_channels, frames, rows, columns]``, whole.
            timestep: scalar.
            text: ``[sequences, text_tokens, text_dim]``; sequences are halves x videos, the half outermost.
            image: ``[videos, image_tokens, image_dim]`` for image to video.

        Returns:
            float32 ``[sequences, local tokens, patch cells x out_channels]``.
        """
        dtype = params["patch_embedding"]["kernel"].dtype
        videos, sequences = latents.shape[0], text.shape[0]
        patches = jax.vmap(self.tokens.shard)(patchify(latents).astype(dtype))
        x = linear(patches, params["patch_embedding"]).astype(dtype)
        embedded, modulation = self._time(params["time"], timestep)
        text = self._text(params["text"], text).astype(dtype)
        if image is not None:
            text, image = split_context(self._image(params["image"], image).astype(dtype), text)
        cosines, sines = (self.tokens.shard(table) for table in tables(self.config, self.grid))

        def sequence(x: jax.Array, text: jax.Array, image: jax.Array | None, layer: Tree) -> jax.Array:
            return self._block(x, text, image, layer, modulation, (cosines, sines))

        gather = gatherer(self.config, self.axes, self.gathered)
        if sequences == 1:
            apply: Callable[..., jax.Array] = sequence
            x, text, image = x[0], text[0], None if image is None else image[0]
        else:
            apply = jax.vmap(sequence, in_axes=(0, 0, 0, None))
            x = jnp.tile(x, (sequences // videos, 1, 1))

        def body(x: jax.Array, layer: Tree) -> tuple[jax.Array, None]:
            return apply(x, text, image, gather(layer)), None

        x, _ = jax.lax.scan(body, x, params["blocks"])
        shift, scale = params["scale_shift_table"] + embedded
        x = layer_norm(x, self.config.eps) * (1 + scale) + shift
        return linear(x, params["proj_out"]).reshape(sequences, self.tokens.local, -1)

    def _time(self, weights: Tree, timestep: jax.Array) -> tuple[jax.Array, jax.Array]:
        embedded = linear(sinusoid(timestep, self.config.freq_dim), weights["linear_1"])
        embedded = linear(jax.nn.silu(embedded), weights["linear_2"])
        return embedded, linear(jax.nn.silu(embedded), weights["projection"]).reshape(6, self.config.hidden)

    def _text(self, weights: Tree, text: jax.Array) -> jax.Array:
        return linear(jax.nn.gelu(linear(text, weights["linear_1"]), approximate=True), weights["linear_2"])

    def _image(self, weights: Tree, image: jax.Array) -> jax.Array:
        x = affine_norm(image, weights["norm1"], self.config.eps_image)
        x = linear(jax.nn.gelu(linear(x, weights["linear_1"]), approximate=False), weights["linear_2"])
        return affine_norm(x, weights["norm2"], self.config.eps_image)

    def _block(
        self,
        x: jax.Array,
        text: jax.Array,
        image: jax.Array | None,
        layer: Tree,
        modulation: jax.Array,
        rope: tuple[jax.Array, jax.Array],
    ) -> jax.Array:
        eps, dtype = self.config.eps, x.dtype
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = layer["scale_shift_table"] + modulation

        def add(x: jax.Array, update: jax.Array) -> jax.Array:
            return (x.astype(jnp.float32) + update).astype(dtype)

        normed = (layer_norm(x, eps) * (1 + scale) + shift).astype(dtype)
        x = add(x, gate * self._self_attention(normed, layer["attn1"], rope))
        normed = affine_norm(x, layer["norm2"], eps).astype(dtype)
        x = add(x, self._cross_attention(normed, text, image, layer["attn2"]))
        normed = (layer_norm(x, eps) * (1 + ffn_scale) + ffn_shift).astype(dtype)
        return add(x, ffn_gate * self._ffn(normed, layer["ffn"]))

    def _self_attention(self, x: jax.Array, weights: Tree, rope: tuple[jax.Array, jax.Array]) -> jax.Array:
        q, k, v = into_heads(x, weights["to_qkv"]).astype(x.dtype)
        q = (rotate(q, weights["norm_q"] * self._scale, *rope) * self._inverse_norm(q)).astype(x.dtype)
        k = (rotate(k, weights["norm_k"], *rope) * self._inverse_norm(k)).astype(x.dtype)
        return self._out_of_heads(self_attention(q, k, v, self.tokens, kernel=self.kernels), weights["to_out"])

    def _cross_attention(self, x: jax.Array, text: jax.Array, image: jax.Array | None, weights: Tree) -> jax.Array:
        q = into_heads(x, weights["to_q"]).astype(x.dtype)
        q = self._head_norm(q, weights["norm_q"] * self._scale).astype(x.dtype)
        k, v = into_heads(text, weights["to_kv"]).astype(x.dtype)
        k = self._head_norm(k, weights["norm_k"]).astype(x.dtype)
        out = cross_attention(q, k, v, kernel=self.kernels)
        if image is not None:
            k, v = into_heads(image, weights["add_kv"]).astype(x.dtype)
            k = self._head_norm(k, weights["norm_added_k"]).astype(x.dtype)
            out = out + cross_attention(q, k, v, kernel=self.kernels)
        return self._out_of_heads(out, weights["to_out"])

    def _ffn(self, x: jax.Array, weights: Tree) -> jax.Array:
        wide = jax.nn.gelu(linear(x, weights["up"]), approximate=True).astype(x.dtype)
        out = self._total(product("tf,fd->td", wide, weights["down"]["kernel"]).astype(x.dtype))
        return out + weights["down"]["bias"].astype(jnp.float32)

    @property
    def _scale(self) -> float:
        return float(self.config.head_dim**-0.5)

    def _head_norm(self, x: jax.Array, scale: jax.Array) -> jax.Array:
        return x.astype(jnp.float32) * self._inverse_norm(x) * scale[:, None, :]

    def _inverse_norm(self, x: jax.Array) -> jax.Array:
        """Returns what RMSNorm multiplies tokens by, ``[tokens, 1]``, over the channels of all heads, other shards'
        too."""
        squares = self.axes.total(jnp.square(x.astype(jnp.float32)).sum(axis=(0, 2)), TENSOR)
        return jax.lax.rsqrt(squares / self.config.hidden + self.config.eps)[:, None]

    def _out_of_heads(self, x: jax.Array, weights: Tree) -> jax.Array:
        kernel = weights["kernel"].reshape(x.shape[0], x.shape[2], -1)
        out = self._total(product("htk,hkd->td", x, kernel).astype(x.dtype))
        return out + weights["bias"].astype(jnp.float32)

    def _total(self, x: jax.Array) -> jax.Array:
        return self.axes.total(x, TENSOR)


def split_context(image: jax.Array, text: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns text and image tokens as the two cross-attentions of image to video see them.

    The reference joins image and text tokens and takes all but 512 of them for the image. With its fixed 512 text
    tokens that gives back what was joined; with fewer it cuts elsewhere, and so does this.
    """
    image = jnp.tile(image, (text.shape[0] // image.shape[0], 1, 1))
    context = jnp.concatenate([image, text], axis=1)
    images = context.shape[1] - REFERENCE_TEXT_TOKENS
    return context[:, images:], context[:, :images]


def patchify(latents: jax.Array) -> jax.Array:
    """Turns ``[videos, channels, frames, rows, columns]`` into ``[videos, tokens, channels x patch cells]``."""
    videos, channels, *cells = latents.shape
    (frames, rows, columns), (p, q, r) = cells, PATCH
    x = latents.reshape(videos, channels, frames // p, p, rows // q, q, columns // r, r)
    return x.transpose(0, 2, 4, 6, 1, 3, 5, 7).reshape(videos, -1, channels * p * q * r)


def unpatchify(tokens: jax.Array, grid: tuple[int, int, int]) -> jax.Array:
    """Turns ``[videos, tokens, patch cells x channels]`` into ``[videos, channels, frames, rows, columns]``."""
    videos, (f, h, w), (p, q, r) = tokens.shape[0], grid, PATCH
    x = tokens.reshape(videos, f, h, w, p, q, r, -1).transpose(0, 7, 1, 4, 2, 5, 3, 6)
    return x.reshape(videos, -1, f * p, h * q, w * r)
