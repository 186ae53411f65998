"""A step over eight devices equals the step on one, for every kind of layout."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adapters.models.wan.axes import UNSHARDED
from adapters.models.wan.checkpoint import load
from adapters.models.wan.config import WanConfig
from adapters.models.wan.parameters import abstract
from adapters.models.wan.space import gathered_axes
from adapters.models.wan.step import Request, denoise, sharded
from adapters.models.wan.tokens import Blocks

ASSETS = Path(__file__).parents[2] / "assets"
TWELVE = WanConfig(heads=12, head_dim=12, layers=2, ffn=96, text_dim=24, text_tokens=8, freq_dim=16)


@functools.cache
def parameters(kind: str) -> tuple[WanConfig, Any]:
    if kind != "t2v-12-heads":
        return load(ASSETS / f"wan_tiny_{kind}", dtype=jnp.float32, text_tokens=16)
    random = np.random.default_rng(0)
    shapes = abstract(TWELVE, jnp.float32)
    return TWELVE, jax.tree.map(lambda leaf: jnp.asarray(random.normal(0, 0.2, leaf.shape), leaf.dtype), shapes)


def request_of(kind: str, videos: int, guidance: bool) -> Request:
    config, _ = parameters(kind)
    return Request(config=config, latent=(3, 6, 10), videos=videos, guidance=guidance, dtype=jnp.float32)


@functools.cache
def arguments(kind: str, videos: int, guidance: bool) -> tuple[Any, ...]:
    request, random = request_of(kind, videos, guidance), np.random.default_rng(1)
    values = {"timestep": 700.0, "step_size": -1.0, "guidance_scale": 5.0}
    inputs = {
        name: jnp.float32(values[name]) if name in values else jnp.asarray(random.normal(size=leaf.shape), leaf.dtype)
        for name, leaf in request.inputs().items()
    }
    return parameters(kind)[1], jnp.asarray(random.normal(size=request.latents().shape), jnp.float32), inputs


@functools.cache
def unsharded(kind: str, videos: int, guidance: bool) -> np.ndarray:
    step = denoise(request_of(kind, videos, guidance), UNSHARDED, Blocks.parse("8,8,8"), (), kernels=False)
    return np.asarray(jax.jit(step)(*arguments(kind, videos, guidance)))


CASES = {
    "cfg and ulysses": ("t2v", 1, True, "cfg=2 ulysses=4", "replicated"),
    "cfg and ring": ("t2v", 1, True, "cfg=2 ring=4", "replicated"),
    "cfg and context": ("t2v", 1, True, "cfg=2 context=4", "context"),
    "cfg and tensor": ("t2v", 1, True, "cfg=2 tensor=4", "cfg"),
    "ring and ulysses": ("t2v", 1, True, "cfg=2 ring=2 ulysses=2", "ring+ulysses"),
    "ring and ulysses with both halves": ("t2v", 1, True, "ring=2 ulysses=4", "ulysses"),
    "context and ulysses": ("t2v", 1, True, "cfg=2 context=2 ulysses=2", "all"),
    "ulysses and tensor": ("t2v", 1, True, "cfg=2 ulysses=2 tensor=2", "cfg+ulysses"),
    "ring, ulysses and tensor": ("t2v", 1, True, "ring=2 ulysses=2 tensor=2", "ring"),
    "context and tensor": ("t2v", 1, True, "context=4 tensor=2", "context"),
    "ring over uneven shards": ("t2v", 1, True, "ring=8", "ring"),
    "context over all": ("t2v", 1, True, "context=8", "context"),
    "no guidance": ("t2v", 1, False, "ring=2 ulysses=4", "replicated"),
    "no guidance, tensor": ("t2v", 1, False, "context=2 ulysses=2 tensor=2", "all"),
    "videos over data": ("t2v", 2, True, "data=2 cfg=2 ulysses=2", "data"),
    "videos on one shard": ("t2v", 2, True, "cfg=2 ulysses=4", "cfg"),
    "videos and halves on one shard": ("t2v", 2, True, "ring=2 ulysses=2 tensor=2", "replicated"),
    "videos without guidance": ("t2v", 2, False, "data=2 ulysses=4", "all"),
    "image, ulysses": ("i2v", 1, True, "cfg=2 ulysses=4", "all"),
    "image, ring": ("i2v", 1, True, "cfg=2 ring=4", "ring"),
    "image, context and tensor": ("i2v", 1, True, "context=4 tensor=2", "context"),
    "image, both halves": ("i2v", 1, True, "ring=2 ulysses=2 tensor=2", "ring+ulysses"),
    "image, videos over data": ("i2v", 2, True, "data=2 cfg=2 tensor=2", "all"),
    "image, videos without guidance": ("i2v", 2, False, "ulysses=2 ring=2 tensor=2", "replicated"),
    "12 heads, ulysses of 6": ("t2v-12-heads", 1, True, "ulysses=6", "ulysses"),
    "12 heads, ulysses and tensor": ("t2v-12-heads", 1, True, "cfg=2 ulysses=2 tensor=2", "ulysses"),
    "12 heads, ring of 3": ("t2v-12-heads", 1, True, "cfg=2 ring=3", "ring"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sharded_step_equals_the_unsharded_one(case: str) -> None:
    check(case, blocks="8,8,8", kernels=False)


@pytest.mark.parametrize("case", ["cfg and ulysses", "ring over uneven shards"])
def test_a_step_for_the_kernel_runs_without_one_where_there_is_no_tpu(case: str) -> None:
    check(case, blocks="128,128,128", kernels=True)


def check(case: str, *, blocks: str, kernels: bool) -> None:
    kind, videos, guidance, axes, weights = CASES[case]
    sizes = dict.fromkeys(("data", "cfg", "ring", "context", "ulysses", "tensor"), 1)
    sizes |= {name: int(size) for name, size in (part.split("=") for part in axes.split())}
    devices = np.array(jax.devices()[: np.prod(list(sizes.values()))]).reshape(tuple(sizes.values()))
    mesh = jax.sharding.Mesh(devices, tuple(sizes))
    step = sharded(
        request_of(kind, videos, guidance), mesh, Blocks.parse(blocks), gathered_axes(weights) or (), kernels=kernels
    )
    concrete = jax.tree.map(
        lambda value, leaf: jax.device_put(value, leaf.sharding), arguments(kind, videos, guidance), step.arguments
    )
    out = np.asarray(jax.jit(step.function, out_shardings=step.out_shardings)(*concrete))
    expected = unsharded(kind, videos, guidance)
    assert out.shape == expected.shape == (videos, 16, 3, 6, 10)
    assert np.abs(out - expected).max() <= 1e-5 * np.abs(expected).max()
