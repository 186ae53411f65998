"""Reads a diffusers checkpoint directory into the parameter tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open

from adapters.models.wan.config import WanConfig
from adapters.models.wan.parameters import Leaf, Tree, leaves
from adapters.models.wan.rope import half_split
from tuner.errors import InvalidValue

Read = Callable[[str], np.ndarray]


def load(directory: str | Path, *, dtype: Any = jnp.bfloat16, text_tokens: int = 512) -> tuple[WanConfig, Tree]:
    """Loads ``config.json`` and every ``*.safetensors`` file of a directory.

    Returns the dimensions and the tree of `parameters.leaves`, on the default device, in `dtype` but for the float32
    parts. Raises FileNotFoundError without a checkpoint there, and InvalidValue for a tensor that is missing or of
    another shape.
    """
    path = Path(directory)
    config = WanConfig.from_diffusers(json.loads((path / "config.json").read_text()), text_tokens=text_tokens)
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no *.safetensors file in {path}")
    where: dict[str, Path] = {}
    for file in files:
        with safe_open(file, framework="flax") as opened:
            where |= dict.fromkeys(opened.keys(), file)

    def read(name: str) -> np.ndarray:
        if name not in where:
            raise InvalidValue(f"checkpoint {path} has no tensor {name!r}")
        with safe_open(where[name], framework="flax") as opened:
            return np.asarray(opened.get_tensor(name))

    def check(key: Any, leaf: Leaf, array: np.ndarray) -> jax.Array:
        if array.shape != leaf.shape:
            raise InvalidValue(
                f"checkpoint {path}: {jax.tree_util.keystr(key, simple=True, separator='/')} has shape {array.shape}; "
                f"the configuration asks for {leaf.shape}"
            )
        return jnp.asarray(array, dtype=jnp.float32 if leaf.exact else dtype)

    return config, jax.tree_util.tree_map_with_path(check, leaves(config), _tree(config, read))


def _tree(config: WanConfig, read: Read) -> Tree:
    embedder = "condition_embedder"
    tree: Tree = {
        "patch_embedding": {
            "kernel": read("patch_embedding.weight").reshape(config.hidden, -1).T,
            "bias": read("patch_embedding.bias"),
        },
        "time": {
            "linear_1": _linear(read, f"{embedder}.time_embedder.linear_1"),
            "linear_2": _linear(read, f"{embedder}.time_embedder.linear_2"),
            "projection": _linear(read, f"{embedder}.time_proj"),
        },
        "text": {
            "linear_1": _linear(read, f"{embedder}.text_embedder.linear_1"),
            "linear_2": _linear(read, f"{embedder}.text_embedder.linear_2"),
        },
        "blocks": jax.tree.map(
            lambda *layers: np.stack(layers), *(_block(config, read, f"blocks.{i}") for i in range(config.layers))
        ),
        "scale_shift_table": read("scale_shift_table")[0],
        "proj_out": _linear(read, "proj_out"),
    }
    if config.image_dim is not None:
        image = f"{embedder}.image_embedder"
        tree["image"] = {
            "norm1": _norm(read, f"{image}.norm1"),
            "linear_1": _linear(read, f"{image}.ff.net.0.proj"),
            "linear_2": _linear(read, f"{image}.ff.net.2"),
            "norm2": _norm(read, f"{image}.norm2"),
        }
    return tree


def _block(config: WanConfig, read: Read, prefix: str) -> Tree:
    heads, width = config.heads, config.head_dim
    natural, halves = np.arange(width), half_split(width)

    def into_heads(names: Mapping[str, np.ndarray]) -> Tree:
        kernels, biases = [], []
        for name, channels in names.items():
            kernel = read(f"{prefix}.{name}.weight").T.reshape(config.hidden, heads, width)
            kernels.append(kernel[..., channels].swapaxes(0, 1))
            biases.append(read(f"{prefix}.{name}.bias").reshape(heads, width)[:, channels])
        several = len(names) > 1
        return {
            "kernel": np.stack(kernels) if several else kernels[0],
            "bias": np.stack(biases) if several else biases[0],
        }

    def head_norm(name: str, channels: np.ndarray) -> np.ndarray:
        return read(f"{prefix}.{name}.weight").reshape(heads, width)[:, channels]

    cross: Tree = {
        "to_q": into_heads({"attn2.to_q": natural}),
        "to_kv": into_heads({"attn2.to_k": natural, "attn2.to_v": natural}),
        "to_out": _linear(read, f"{prefix}.attn2.to_out.0"),
        "norm_q": head_norm("attn2.norm_q", natural),
        "norm_k": head_norm("attn2.norm_k", natural),
    }
    if config.image_dim is not None:
        cross |= {
            "add_kv": into_heads({"attn2.add_k_proj": natural, "attn2.add_v_proj": natural}),
            "norm_added_k": head_norm("attn2.norm_added_k", natural),
        }
    return {
        "scale_shift_table": read(f"{prefix}.scale_shift_table")[0],
        "attn1": {
            "to_qkv": into_heads({"attn1.to_q": halves, "attn1.to_k": halves, "attn1.to_v": natural}),
            "to_out": _linear(read, f"{prefix}.attn1.to_out.0"),
            "norm_q": head_norm("attn1.norm_q", halves),
            "norm_k": head_norm("attn1.norm_k", halves),
        },
        "norm2": _norm(read, f"{prefix}.norm2"),
        "attn2": cross,
        "ffn": {"up": _linear(read, f"{prefix}.ffn.net.0.proj"), "down": _linear(read, f"{prefix}.ffn.net.2")},
    }


def _linear(read: Read, name: str) -> Tree:
    return {"kernel": read(f"{name}.weight").T, "bias": read(f"{name}.bias")}


def _norm(read: Read, name: str) -> Tree:
    return {"scale": read(f"{name}.weight"), "bias": read(f"{name}.bias")}
