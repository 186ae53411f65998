"""Small programs over eight devices, and what the screen makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from adapters.jax.screen.facts import screened
from adapters.jax.screen.reading import read
from adapters.jax.screen.shardy import partition
from tuner.ports import Screened
from tuner.program.program import AttentionKernel, Collective, Compute, Loop, Node

P = PartitionSpec
LAYERS, BATCH, LENGTH, EMBED, HIDDEN = 4, 8, 256, 128, 512


def mesh(dp: int = 2, tp: int = 4) -> Mesh:
    devices = np.array(jax.devices()[: dp * tp]).reshape(dp, tp)
    return Mesh(devices, ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def array(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh(), P(*spec)))


def constrain(x: jax.Array, *spec: Any) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh(), P(*spec)))


def screen(function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None) -> Screened:
    kwargs = {} if out is None else {"out_shardings": NamedSharding(mesh(), out)}
    jitted = jax.jit(function, donate_argnums=donate, **kwargs)
    module = jitted.trace(*arguments).lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
    partition(module)
    return screened(read(module), devices=8, digest="")


def over_all(function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, check_vma=False)


Sent = Counter[tuple[str, int, int, int]]


def collectives(found: Screened) -> Sent:
    """Returns how often each (name without number, operand bytes, result bytes, group size) runs."""
    sent: Sent = Counter()
    for node, times in found.program.walk():
        if isinstance(node, Collective):
            sent[node.name.split(" #")[0], node.operand_bytes, node.result_bytes, node.group_size] += times
    return sent


def flops(found: Screened) -> float:
    return sum(node.flops * times for node, times in found.program.walk() if isinstance(node, Compute))


def kernels(found: Screened) -> list[AttentionKernel]:
    return [node.kernel for node, _ in found.program.walk() if isinstance(node, Compute) and node.kernel is not None]


def loops(nodes: Iterable[Node]) -> list[Any]:
    """Returns the trip counts of loops, nested as they are."""
    return [(node.trips, loops(node.body)) for node in nodes if isinstance(node, Loop)]
