"""Makes the compiled texts that the HLO reader is tested on: our own small programs, compiled for TPU ahead of time.

    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 python tests/assets/hlo/make.py [NAME ...]

writes ``<jax version>/<name>.txt.xz`` beside this file and prints what the compiler says of each program. Run it once
with each version of jax that is supported. No TPU is needed.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BF16 = jnp.bfloat16
PROGRAMS: dict[str, Callable[[], Any]] = {}
ABSOLUTE_PATH = re.compile(r'"/[^"\n]*?([^/"\n]+\.py)"')
"""Source files in the text's table of locations, which would say where this program was run."""


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[make.__name__] = make
    return make


def mesh_on(topology: str, axes: dict[str, int], **options: Any) -> Mesh:
    """A mesh in row-major order of coordinates (slices outermost)."""
    devices = topologies.get_topology_desc(topology_name=topology, platform="tpu", **options).devices
    ordered = sorted(devices, key=lambda d: (getattr(d, "slice_index", 0) if options else 0, tuple(d.coords)[::-1]))
    grid = np.array(ordered, dtype=object).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def spec(mesh: Mesh, shape: tuple[int, ...], *axes: Any, dtype: Any = BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))


def compiled(function: Callable[..., Any], *arguments: Any, options: dict[str, str] | None = None, **jit: Any) -> Any:
    lowered = jax.jit(function, **jit).trace(*arguments).lower(lowering_platforms=("tpu",))
    return lowered.compile(compiler_options=options)


# Loops: the cost of L layers is L times that of one


def layer(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> jax.Array:
    up, down = weights
    y = x.astype(jnp.float32)
    y = (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(BF16)
    return x + jax.nn.gelu(y @ up) @ down


def stack(layers: int, *, scan: bool) -> Any:
    mesh = mesh_on("v5e:2x2", {"data": 4})

    def step(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        if scan:
            return jax.lax.scan(lambda h, w: (layer(h, w), None), x, (up, down))[0]
        for index in range(layers):
            x = layer(x, (up[index], down[index]))
        return x

    return compiled(
        step,
        spec(mesh, (8192, 2048), "data"),
        spec(mesh, (layers, 2048, 8192)),
        spec(mesh, (layers, 8192, 2048)),
    )


PROGRAMS["layers_1"] = partial(stack, 1, scan=False)
PROGRAMS["layers_2_scan"] = partial(stack, 2, scan=True)
PROGRAMS["layers_6_scan"] = partial(stack, 6, scan=True)
PROGRAMS["layers_3_unrolled"] = partial(stack, 3, scan=False)


@program
def nested_loops() -> Any:
    """3 x 5 matrix products, and a loop that counts by two."""
    mesh = mesh_on("v5e:2x2", {"data": 4})

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        def outer(h: jax.Array, _: None) -> tuple[jax.Array, None]:
            h = jax.lax.fori_loop(0, 5, lambda i, h: jax.nn.gelu(h @ w), h)
            return jnp.sin(h), None

        x = jax.lax.scan(outer, x, None, length=3)[0]
        return jax.lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 2, jnp.tanh(c[1] @ w)), (0, x))[1]

    return compiled(step, spec(mesh, (4096, 1024), "data"), spec(mesh, (1024, 1024)))


# An attention block as video models have it


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    heads, q_len, kv_len = q.shape[1], q.shape[2], k.shape[2]
    mask = masks.MultiHeadMask([masks.FullMask((q_len, kv_len))] * heads)
    sizes = splash.BlockSizes(block_q=512, block_kv=1024, block_kv_compute=512)
    kernel = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
    return jax.vmap(kernel)(q, k, v)


@program
def attention_stack() -> Any:
    """4 layers: tensor-parallel projections, all-to-all to heads, splash attention, all-to-all back."""
    layers, heads, length, width, head = 4, 8, 4096, 1024, 128
    mesh = mesh_on("v5e:2x4", {"data": 2, "ulysses": 2, "tensor": 2})
    rows = P("data", "ulysses", None)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def spread(t: jax.Array) -> jax.Array:
            return jax.lax.all_to_all(t, "ulysses", split_axis=1, concat_axis=2, tiled=True)

        return jax.lax.all_to_all(
            attention(*map(spread, (q, k, v))), "ulysses", split_axis=2, concat_axis=1, tiled=True
        )

    sharded = P("data", "tensor", "ulysses", None)
    attend = jax.shard_map(attend, mesh=mesh, in_specs=(sharded,) * 3, out_specs=sharded, check_vma=False)

    def block(x: jax.Array, weights: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        qkv, out, up, down = weights
        q, k, v = (
            (x @ qkv[index]).reshape(*x.shape[:2], heads, head).transpose(0, 2, 1, 3).astype(BF16) for index in range(3)
        )
        mixed = attend(q, k, v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = jax.lax.with_sharding_constraint(x + mixed @ out, NamedSharding(mesh, rows))
        x = x + jax.nn.gelu(x @ up) @ down
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, rows)), None

    def step(x: jax.Array, *weights: jax.Array) -> jax.Array:
        return jax.lax.scan(block, x, weights)[0]

    return compiled(
        step,
        spec(mesh, (2, length, width), *rows),
        spec(mesh, (layers, 3, width, width), None, None, None, "tensor"),
        spec(mesh, (layers, width, width), None, "tensor", None),
        spec(mesh, (layers, width, 4 * width), None, None, "tensor"),
        spec(mesh, (layers, 4 * width, width), None, "tensor", None),
    )


# Each collective by itself, 16 groups-of-4 style on 4x4


def one_collective(name: str, topology: str = "v5e:4x4", kib: int = 4096) -> Any:
    mesh = mesh_on(topology, {"outer": 4, "inner": 4})
    ring = [(position, (position + 1) % 4) for position in range(4)]
    rows = kib * 1024 // 256

    def body(x: jax.Array) -> jax.Array:
        match name:
            case "all_reduce":
                return jax.lax.psum(x, "inner")
            case "all_reduce_outer":
                return jax.lax.psum(x, "outer")
            case "all_gather":
                return jax.lax.all_gather(x, "inner", tiled=True)
            case "reduce_scatter":
                return jax.lax.psum_scatter(x, "inner", tiled=True)
            case "all_to_all":
                return jax.lax.all_to_all(x.reshape(4, -1, 128), "inner", split_axis=0, concat_axis=1, tiled=True)
            case "permute":
                return jax.lax.ppermute(x, "inner", ring)
        raise ValueError(name)

    whole = P(("outer", "inner"))
    out = {"all_reduce": P("outer"), "all_gather": P("outer"), "all_reduce_outer": P("inner")}.get(name, whole)
    function = jax.shard_map(body, mesh=mesh, in_specs=whole, out_specs=out, check_vma=False)
    return compiled(function, spec(mesh, (16 * rows, 128), ("outer", "inner")))


for each in ("all_reduce", "all_reduce_outer", "all_gather", "reduce_scatter", "all_to_all", "permute"):
    PROGRAMS[each] = partial(one_collective, each)


@program
def uneven_reduce_scatter() -> Any:
    """Rows that do not divide into tiles: the compiler pads, and fixes up with permutes."""
    mesh = mesh_on("v5e:4x4", {"outer": 4, "inner": 4})

    def body(x: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(x, "inner", tiled=True)

    whole = P(("outer", "inner"))
    function = jax.shard_map(body, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    return compiled(function, spec(mesh, (16 * 65528, 128), ("outer", "inner")))


@program
def whole_slice_gather() -> Any:
    """A gather over every chip of 8x8, which the compiler writes as an all-reduce."""
    mesh = mesh_on("v6e:8x8", {"all": 64})
    function = jax.shard_map(
        lambda x: jax.lax.all_gather(x, "all", tiled=True),
        mesh=mesh,
        in_specs=P("all"),
        out_specs=P(),
        check_vma=False,
    )
    return compiled(function, spec(mesh, (64 * 1024, 128), "all"))


@program
def routed_permute() -> Any:
    """On v5e with more than 16 chips a permute between chips that cannot reach each other is synchronous."""
    mesh = mesh_on("v5e:8x8", {"y": 8, "x": 8})
    pairs = [(position, (position + 3) % 8) for position in range(8)]
    function = jax.shard_map(
        lambda x: jax.lax.ppermute(x, "x", pairs),
        mesh=mesh,
        in_specs=P(("y", "x")),
        out_specs=P(("y", "x")),
        check_vma=False,
    )
    return compiled(function, spec(mesh, (64 * 1024, 128), ("y", "x")))


@program
def ring() -> Any:
    """Ring accumulation: a loop of products, each with the permute of the next operand under way."""
    mesh = mesh_on("v5e:2x4", {"outer": 2, "ring": 4})
    pairs = [(position, (position + 1) % 4) for position in range(4)]

    def body(q: jax.Array, kv: jax.Array) -> jax.Array:
        def turn(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
            total, block = carry
            following = jax.lax.ppermute(block, "ring", pairs)
            return (total + jax.nn.relu(q @ block.T) @ block, following), None

        return jax.lax.scan(turn, (jnp.zeros_like(q), kv), None, length=4)[0][0]

    rows = P(("outer", "ring"))
    function = jax.shard_map(body, mesh=mesh, in_specs=(rows, rows), out_specs=rows, check_vma=False)
    return compiled(function, *(spec(mesh, (8 * 2048, 1024), ("outer", "ring")) for _ in range(2)))


def sharded_weights(windowed_einsum_mib: int) -> Any:
    mesh = mesh_on("v5e:2x4", {"data": 8})
    layers = 6

    def step(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, w: (layer(h, w), None), x, (up, down))[0]

    return compiled(
        step,
        spec(mesh, (16384, 2048), "data"),
        spec(mesh, (layers, 2048, 8192), None, "data"),
        spec(mesh, (layers, 8192, 2048), None, "data"),
        options={"xla_jf_spmd_threshold_for_windowed_einsum_mib": str(windowed_einsum_mib)},
    )


@program
def windowed_layers() -> Any:
    """Weights sharded over the data axis: inside each layer a loop of partial products and permutes."""
    return sharded_weights(0)


@program
def gathered_layers() -> Any:
    """Weights gathered layer by layer."""
    return sharded_weights(1 << 20)


@program
def overlapped_gather() -> Any:
    """A gather under a product that does not need it: asynchronous collective fusion."""
    mesh = mesh_on("v5e:4x4", {"outer": 4, "inner": 4})

    def body(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        gathered = jax.lax.all_gather(down, "inner", tiled=True)
        return jax.nn.gelu(x @ up) @ gathered

    rows = P(("outer", "inner"))
    function = jax.shard_map(body, mesh=mesh, in_specs=(rows, P(), P("inner")), out_specs=rows, check_vma=False)
    return compiled(
        function,
        spec(mesh, (16384, 4096), ("outer", "inner")),
        spec(mesh, (4096, 16384)),
        spec(mesh, (16384, 4096), "inner"),
    )


@program
def overlapped_all_to_all() -> Any:
    """An all-to-all under a product that does not need it, with the flag that makes it asynchronous."""
    mesh = mesh_on("v5e:2x4", {"outer": 2, "inner": 4})

    def body(x: jax.Array, w: jax.Array, heads: jax.Array) -> tuple[jax.Array, jax.Array]:
        exchanged = jax.lax.all_to_all(heads, "inner", split_axis=0, concat_axis=1, tiled=True)
        return x @ w, exchanged + 1

    rows, lengths = P(("outer", "inner")), P(None, ("outer", "inner"))
    function = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(rows, P(), lengths),
        out_specs=(rows, P("inner", "outer")),
        check_vma=False,
    )
    return compiled(
        function,
        spec(mesh, (32768, 2048), ("outer", "inner")),
        spec(mesh, (2048, 8192)),
        spec(mesh, (12, 16384, 128), None, ("outer", "inner")),
        options={"xla_tpu_enable_async_all_to_all": "true"},
    )


@program
def multislice() -> Any:
    """Sums over two slices: a reduce-scatter inside, the data-centre network between, a gather inside."""
    mesh = mesh_on("v5e:2x2", {"dcn": 2, "ici": 4}, num_slices=2)

    def body(x: jax.Array) -> jax.Array:
        return jax.lax.psum(x, ("dcn", "ici"))

    function = jax.shard_map(body, mesh=mesh, in_specs=P(("dcn", "ici")), out_specs=P(), check_vma=False)
    return compiled(function, spec(mesh, (8 * 16384, 128), ("dcn", "ici")))


def main(names: list[str]) -> None:
    folder = Path(__file__).parent / jax.__version__
    folder.mkdir(exist_ok=True)
    facts_path = folder / "facts.json"
    facts = json.loads(facts_path.read_text()) if facts_path.exists() else {}
    for name in names or PROGRAMS:
        started = time.monotonic()
        result = PROGRAMS[name]()
        text = ABSOLUTE_PATH.sub(r'"\1"', result.as_text())
        memory, cost = result.memory_analysis(), result.cost_analysis()
        facts[name] = {
            "argument_bytes": memory.argument_size_in_bytes,
            "output_bytes": memory.output_size_in_bytes,
            "temp_bytes": memory.temp_size_in_bytes,
            "alias_bytes": memory.alias_size_in_bytes,
            "code_bytes": memory.generated_code_size_in_bytes,
            "bytes_accessed": cost.get("bytes accessed", 0.0),
            "flops": cost.get("flops", 0.0),
        }
        packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        (folder / f"{name}.txt.xz").write_bytes(packed)
        print(
            f"{name}: {len(text)} -> {len(packed)} bytes, {time.monotonic() - started:.1f} s {facts[name]}", flush=True
        )
    facts_path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
