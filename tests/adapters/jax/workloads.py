"""Small workloads for the compiler's processes: one that compiles, and one for each way to fail."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from adapters.jax.step import Step
from tuner.layouts.layout import Layout
from tuner.layouts.space import Choice, Dimension, Space
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

WAYS = ("fine", "renamed", "hbm", "vmem", "unroutable", "raises", "unfixed", "abort", "hang")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """Two products, sharded over ``data`` and ``tensor``; its option says how to fail."""

    name: str = "tiny@1"
    spec: WorkloadSpec = field(default_factory=lambda: WorkloadSpec(model="tests.adapters.jax.workloads:TINY"))
    identity: Mapping[str, str] = field(default_factory=lambda: {"model": "tiny"})
    source: str = ""
    space: Space = field(
        default_factory=lambda: Space(
            dimensions=tuple(Dimension(name=name, sizes=(1, 2, 4, 8)) for name in ("data", "tensor")),
            options=(Choice(name="way", values=WAYS),),
        )
    )

    def verdict(self, layout: Layout) -> Rejection | None:
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        return {}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return ()

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        way = layout.option("way", "fine")

        def abstract(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*axes)))

        def mlp(params: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
            if way == "raises":
                raise ValueError("7 heads do not divide over tensor=2")
            if way == "abort":
                os.write(2, b"F1130 19:23:26.831757    5830 lowered_getter.cc:39] Check failed: for the test\n")
                os.abort()
            if way == "hang":
                time.sleep(600)
            if way == "unfixed":
                x = jax.lax.while_loop(lambda v: v[0, 0] > 0, lambda v: v - 1, x)
            return jax.nn.gelu(x @ params["up"]) @ params["down"]

        def renamed(params: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
            hidden = jax.nn.gelu(x @ params["up"])
            return hidden @ params["down"]

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            mask = masks.MultiHeadMask([masks.FullMask((8192, 8192))] * 2)
            sizes = splash.BlockSizes(block_q=2048, block_kv=2048, block_kv_compute=2048)
            kernel = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
            return jax.shard_map(kernel, mesh=mesh, in_specs=(P(),) * 3, out_specs=P(), check_vma=False)(q, k, v)

        def apart(x: jax.Array) -> jax.Array:
            pairs = [[0, 3], [1, 2], [4, 5], [6, 7]]  # 0 and 3 cannot reach each other on a large v5e slice
            return jax.shard_map(
                lambda v: jax.lax.all_gather(v, "tensor", axis_index_groups=pairs, tiled=True),
                mesh=mesh,
                in_specs=P("tensor"),
                out_specs=P("tensor"),
                check_vma=False,
            )(x)

        if way == "vmem":
            return Step(function=attend, arguments=(abstract((2, 8192, 128)),) * 3)
        if way == "unroutable":
            return Step(function=apart, arguments=(abstract((64 * 1024, 128), "tensor"),))
        rows = (1 << 21) if way == "hbm" else 1024
        params = {"up": abstract((512, 2048), None, "tensor"), "down": abstract((2048, 512), "tensor", None)}
        return Step(
            function=renamed if way == "renamed" else mlp, arguments=(params, abstract((8 * rows, 512), "data"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotating:
    """A product whose rows go around along ``ring``, and its sum over ``data``.

    With ``data`` 1, rows are gathered between pairs of chips that no placement puts within reach of one another on v5e.
    """

    name: str = "rotating@1"
    spec: WorkloadSpec = field(default_factory=lambda: WorkloadSpec(model="tests.adapters.jax.workloads:ROTATING"))
    identity: Mapping[str, str] = field(default_factory=lambda: {"model": "rotating"})
    source: str = ""
    space: Space = field(
        default_factory=lambda: Space(
            dimensions=(Dimension(name="data", sizes=(1, 8)), Dimension(name="ring", sizes=(1, 4, 32)))
        )
    )

    def verdict(self, layout: Layout) -> Rejection | None:
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        return {"A": Layout.of({"data": 8, "ring": 4})}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return ()

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        size = layout.size("ring")

        def rotate(x: jax.Array, w: jax.Array) -> jax.Array:
            if layout.size("data") == 1:
                members = np.random.default_rng(5).permutation(size).reshape(-1, 2).tolist()
                return jax.lax.all_gather(x, "ring", axis_index_groups=members, tiled=True) @ w
            x = jax.lax.ppermute(x, "ring", [(k, (k + 1) % size) for k in range(size)])
            return jax.lax.psum(x @ w, "data")

        out = P("ring") if layout.size("data") > 1 else P(("data", "ring"))
        function = jax.shard_map(rotate, mesh=mesh, in_specs=(P(("data", "ring")), P()), out_specs=out, check_vma=False)
        x = jax.ShapeDtypeStruct((32 * 512, 1024), jnp.bfloat16, sharding=NamedSharding(mesh, P(("data", "ring"))))
        w = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
        return Step(function=function, arguments=(x, w))


TINY = Tiny()
ROTATING = Rotating()


def broken() -> Tiny:
    raise RuntimeError("the checkpoint is not there")
