"""Single operations as JAX programs that repeat them, so that one call is long beside the wait for the device.

Every repetition takes the result of the one before, so that the compiler can neither leave one out nor run two at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax.step import Step
from adapters.models.wan.attention import splash_attention
from adapters.models.wan.tokens import Blocks
from tuner.calibration.suite import Benchmark
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind
from tuner.slices.slice import Slice

GROUP, MEMBER = "group", "member"
_LANES = 128


def layout_of(benchmark: Benchmark, slice_: Slice) -> tuple[Layout, Placement]:
    """Returns a mesh whose second axis runs over the members of a group, and the devices in that order."""
    node = benchmark.node
    groups = node.groups if isinstance(node, Collective) and node.groups else (tuple(range(slice_.num_devices)),)
    order = tuple(device for group in groups for device in group)
    return Layout.of({GROUP: len(groups), MEMBER: len(groups[0])}, {}), Placement(devices=order)


def step(benchmark: Benchmark, mesh: jax.sharding.Mesh, repeats: int) -> Step:
    """Returns a step that repeats the operation on every device of the mesh, an even number of times."""
    shape, dtype, once = _operation(benchmark)
    everywhere = PartitionSpec((GROUP, MEMBER))

    def repeated(*blocks: jax.Array) -> jax.Array:
        carried, *rest = (block[0] for block in blocks)
        # Two in each trip read and write two buffers in turns; with one, the compiler copies the result back.
        done: jax.Array = jax.lax.fori_loop(0, repeats, lambda _, x: once(x, *rest), carried, unroll=2)
        return done[None]

    arguments = tuple(
        jax.ShapeDtypeStruct((mesh.size, *each), dtype, sharding=NamedSharding(mesh, everywhere)) for each in shape
    )
    function = jax.shard_map(
        repeated, mesh=mesh, in_specs=(everywhere,) * len(arguments), out_specs=everywhere, check_vma=False
    )
    return Step(function=function, arguments=arguments, out_shardings=NamedSharding(mesh, everywhere))


def _operation(benchmark: Benchmark) -> tuple[tuple[tuple[int, ...], ...], Any, Callable[..., jax.Array]]:
    """Returns the shapes of the arrays of one device, their dtype, and one repetition; the first array is carried."""
    node = benchmark.node
    if isinstance(node, Collective):
        held = max(node.operand_bytes, node.result_bytes) if node.kind in _INTO_PLACE else node.operand_bytes
        return (_rows(held),), jnp.float32, _COLLECTIVES[node.kind](node)
    match node.kind:
        case ComputeKind.MATMUL:
            m, k, n = benchmark.shape
            # Row means: neither overflow nor denormal numbers, whatever the number of repetitions.
            return ((m, k), (k, n)), jnp.bfloat16, lambda x, w: (x @ w).astype(x.dtype)
        case ComputeKind.MEMORY:
            # The barrier keeps two passes from becoming one.
            rows = _rows(node.bytes // 2)
            return (rows,), jnp.float32, lambda x: jax.lax.optimization_barrier(x * 0.999 + 1)
        case ComputeKind.KERNEL if node.kernel is not None:
            return _attention(node)
    raise InvalidValue(f"no program for {benchmark.name!r} of kind {node.kind}")


def _rows(size: int) -> tuple[int, int]:
    return size // (4 * _LANES), _LANES


def _attention(node: Compute) -> tuple[tuple[tuple[int, ...], ...], Any, Callable[..., jax.Array]]:
    kernel = node.kernel
    assert kernel is not None
    query, keys, compute = kernel.blocks
    blocks = Blocks(query=query, keys=keys, compute=compute)
    queries, whole = (kernel.heads, kernel.q_len, kernel.head_dim), (kernel.heads, kernel.kv_len, kernel.head_dim)

    def once(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return splash_attention(q, k, v, kernel.kv_len, blocks)

    return (queries, whole, whole), jnp.bfloat16, once


def _reduce(node: Collective) -> Callable[[jax.Array], jax.Array]:
    share = 1 / node.group_size
    return lambda x: jax.lax.psum(x, MEMBER) * share


def _gather(node: Collective) -> Callable[[jax.Array], jax.Array]:
    shard = _rows(node.operand_bytes)

    def once(x: jax.Array) -> jax.Array:
        # Which part goes in next depends on the data, so that the compiler cannot make a permute of it.
        gathered = jax.lax.all_gather(x, MEMBER, tiled=True)
        return jax.lax.dynamic_slice(gathered, (_zero(gathered), 0), shard)

    return once


def _scatter(node: Collective) -> Callable[[jax.Array], jax.Array]:
    share = 1 / node.group_size

    def once(x: jax.Array) -> jax.Array:
        part = jax.lax.psum_scatter(x, MEMBER, tiled=True) * share
        return jax.lax.dynamic_update_slice(x, part, (_zero(part), 0))

    return once


def _exchange(node: Collective) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.all_to_all(x, MEMBER, split_axis=0, concat_axis=0, tiled=True)


def _permute(node: Collective) -> Callable[[jax.Array], jax.Array]:
    # Logical ids are flat, and where pairs are listed the mesh has one group.
    return lambda x: jax.lax.ppermute(x, MEMBER, node.pairs)


def _zero(x: jax.Array) -> jax.Array:
    """Returns 0, which the compiler cannot know."""
    return (x[0, 0] > 1e30).astype(jnp.int32)


_COLLECTIVES = {
    CollectiveKind.ALL_REDUCE: _reduce,
    CollectiveKind.ALL_GATHER: _gather,
    CollectiveKind.REDUCE_SCATTER: _scatter,
    CollectiveKind.ALL_TO_ALL: _exchange,
    CollectiveKind.COLLECTIVE_PERMUTE: _permute,
}
_INTO_PLACE = (CollectiveKind.REDUCE_SCATTER,)
