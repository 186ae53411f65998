"""The parameter tree: shapes, dtypes and logical axes of every leaf, and the rules that map those axes to a mesh.

Weights of all blocks are stacked along a leading axis for one scan. Projections into heads are kept as
``[heads, in, head_dim]``, so that a product yields ``[heads, tokens, head_dim]`` without a change of layout; queries,
keys and values are one weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from adapters.models.wan.axes import TENSOR, Axes
from adapters.models.wan.config import WanConfig

Tree = dict[str, Any]

LAYERS = "layers"
HEADS = "heads"
FFN = "ffn"
ROWS = "rows"
HEAD_ROWS = "head-rows"
FFN_ROWS = "ffn-rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One array of the tree.

    Attributes:
        shape: global shape.
        dims: the logical axis of each dimension, None where it is never split.
        exact: kept in float32 whatever the dtype of the weights.
    """

    shape: tuple[int, ...]
    dims: tuple[str | None, ...]
    exact: bool = False


def _replicated(*shape: int, exact: bool = False) -> Leaf:
    return Leaf(shape=shape, dims=(None,) * len(shape), exact=exact)


def _linear(into: int, out: int, *, exact: bool = False) -> Tree:
    return {"kernel": _replicated(into, out, exact=exact), "bias": _replicated(out, exact=exact)}


def _norm(width: int) -> Tree:
    return {"scale": _replicated(width, exact=True), "bias": _replicated(width, exact=True)}


def _stacked(layers: int, tree: Tree) -> Any:
    return jax.tree.map(
        lambda leaf: Leaf(shape=(layers, *leaf.shape), dims=(LAYERS, *leaf.dims), exact=leaf.exact), tree
    )


def _into_heads(config: WanConfig, *several: int) -> Tree:
    heads, width, hidden = config.heads, config.head_dim, config.hidden
    none = (None,) * len(several)
    return {
        "kernel": Leaf(shape=(*several, heads, hidden, width), dims=(*none, HEADS, ROWS, None)),
        "bias": Leaf(shape=(*several, heads, width), dims=(*none, HEADS, None)),
    }


def _head_norm(config: WanConfig) -> Leaf:
    return Leaf(shape=(config.heads, config.head_dim), dims=(HEADS, None), exact=True)


def _out_of_heads(config: WanConfig) -> Tree:
    return {
        "kernel": Leaf(shape=(config.hidden, config.hidden), dims=(HEAD_ROWS, None)),
        "bias": _replicated(config.hidden),
    }


def _block(config: WanConfig) -> Tree:
    cross: Tree = {
        "to_q": _into_heads(config),
        "to_kv": _into_heads(config, 2),
        "to_out": _out_of_heads(config),
        "norm_q": _head_norm(config),
        "norm_k": _head_norm(config),
    }
    if config.image_dim is not None:
        cross |= {"add_kv": _into_heads(config, 2), "norm_added_k": _head_norm(config)}
    return {
        "scale_shift_table": _replicated(6, config.hidden, exact=True),
        "attn1": {
            "to_qkv": _into_heads(config, 3),
            "to_out": _out_of_heads(config),
            "norm_q": _head_norm(config),
            "norm_k": _head_norm(config),
        },
        "norm2": _norm(config.hidden),
        "attn2": cross,
        "ffn": {
            "up": {
                "kernel": Leaf(shape=(config.hidden, config.ffn), dims=(ROWS, FFN)),
                "bias": Leaf(shape=(config.ffn,), dims=(FFN,)),
            },
            "down": {
                "kernel": Leaf(shape=(config.ffn, config.hidden), dims=(FFN_ROWS, None)),
                "bias": _replicated(config.hidden),
            },
        },
    }


def leaves(config: WanConfig) -> Tree:
    """Returns the whole tree of `Leaf`s."""
    hidden = config.hidden
    tree: Tree = {
        "patch_embedding": _linear(config.in_channels * config.patch_cells, hidden),
        "time": {
            "linear_1": _linear(config.freq_dim, hidden, exact=True),
            "linear_2": _linear(hidden, hidden, exact=True),
            "projection": _linear(hidden, 6 * hidden),
        },
        "text": {"linear_1": _linear(config.text_dim, hidden), "linear_2": _linear(hidden, hidden)},
        "blocks": _stacked(config.layers, _block(config)),
        "scale_shift_table": _replicated(2, hidden, exact=True),
        "proj_out": _linear(hidden, config.out_channels * config.patch_cells),
    }
    if config.image_dim is not None:
        tree["image"] = {
            "norm1": _norm(config.image_dim),
            "linear_1": _linear(config.image_dim, config.image_dim),
            "linear_2": _linear(config.image_dim, hidden),
            "norm2": _norm(hidden),
        }
    return tree


def rules(axes: Axes, gathered: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the mesh axes of each logical axis.

    `tensor` splits heads and the feed-forward width; weights are kept split over `gathered` along rows besides, and
    gathered layer by layer. Rows that `tensor` splits too are split by it first, so that a gather yields its part.
    """
    tensor, kept = axes.active(TENSOR), axes.active(*gathered)
    return {HEADS: tensor, FFN: tensor, ROWS: kept, HEAD_ROWS: (*tensor, *kept), FFN_ROWS: (*tensor, *kept)}


def spec(leaf: Leaf, mapping: Mapping[str, tuple[str, ...]]) -> PartitionSpec:
    """Returns the mesh axes of each dimension of a leaf."""
    return PartitionSpec(*(mapping.get(dim or "", ()) or None for dim in leaf.dims))


def specs(config: WanConfig, axes: Axes, gathered: tuple[str, ...]) -> Any:
    """Returns the tree of partition specs."""
    mapping = rules(axes, gathered)
    return jax.tree.map(lambda leaf: spec(leaf, mapping), leaves(config))


def abstract(config: WanConfig, dtype: Any) -> Any:
    """Returns the tree of shapes and dtypes, without shardings."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32 if leaf.exact else dtype), leaves(config)
    )


def gatherer(config: WanConfig, axes: Axes, gathered: tuple[str, ...]) -> Callable[[Tree], Tree]:
    """Returns the function that completes the weights of one layer from the shards over `gathered`."""
    dims = [leaf.dims[1:] for leaf in jax.tree.leaves(leaves(config)["blocks"])]

    def gather(layer: Tree) -> Tree:
        arrays, structure = jax.tree.flatten(layer)
        complete: Tree = structure.unflatten(
            next(
                (axes.gather(x, *gathered, dimension=i) for i, dim in enumerate(of) if dim in _SPLIT_ROWS),
                x,
            )
            for x, of in zip(arrays, dims, strict=True)
        )
        return complete

    return gather


_SPLIT_ROWS = frozenset({ROWS, HEAD_ROWS, FFN_ROWS})
