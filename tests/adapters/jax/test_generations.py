"""The figures of `tuner.slices.generations` against their sources: jax's own table and the compiler's limits."""

import importlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax.topologies import auto_mesh, topology
from tuner.layouts.layout import Layout
from tuner.slices.generations import GENERATIONS, GIB, MIB, Generation
from tuner.slices.names import parse_slice

CHIPS = {"v4": "TPU_V4", "v5e": "TPU_V5E", "v5p": "TPU_V5P", "v6e": "TPU_V6E", "v7x": "TPU_7X"}
ROW_BYTES = 1024 * 4


def table() -> Any:
    try:
        return importlib.import_module("jax._src.tpu_info")
    except ModuleNotFoundError:
        return importlib.import_module("jax._src.pallas.mosaic.tpu_info")


@pytest.mark.parametrize("name", GENERATIONS)
def test_figures_equal_the_table_of_jax(name: str) -> None:
    entry = GENERATIONS[name]
    cores = 2 if entry.chip_config == "megacore" else 1
    info = table().get_tpu_info_for_chip(table().ChipVersion[CHIPS[name]], cores)
    assert entry.peak_flops == pytest.approx(info.bf16_ops_per_second * cores, rel=1e-6)
    assert entry.vmem_bytes == info.vmem_capacity_bytes
    assert info.hbm_capacity_bytes * cores * 0.9 < entry.hbm_bytes < info.hbm_capacity_bytes * cores * 1.001
    if name == "v5p":  # Google Cloud documents 2.765e12
        assert info.mem_bw_bytes_per_second * cores == pytest.approx(2.46e12)
        assert entry.hbm_bytes_per_s == 2.765e12
    else:
        assert entry.hbm_bytes_per_s == pytest.approx(info.mem_bw_bytes_per_second * cores, rel=1e-6)


def argument(entry: Generation, rows: int) -> jax.ShapeDtypeStruct:
    one_host = parse_slice(f"{entry.name}-{'2x2x1' if entry.dimensions == 3 else '2x2'}")
    mesh = auto_mesh(topology(one_host).devices[:1], Layout.of({"x": 1}))
    return jax.ShapeDtypeStruct((rows, 1024), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))


@pytest.mark.compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_the_compiler_lets_a_program_use_hbm_bytes(name: str) -> None:
    entry = GENERATIONS[name]

    def compile_with(argument_bytes: int) -> None:
        jax.jit(lambda x: x[0, 0]).lower(argument(entry, argument_bytes // ROW_BYTES)).compile()

    compile_with(entry.hbm_bytes - MIB)
    # The next larger reserve of the two compilers that the figure holds for is 16 MiB less.
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"exceeds available HBM|Exceeded hbm capacity"):
        compile_with(entry.hbm_bytes + 17 * MIB)


@pytest.mark.compiler
@pytest.mark.parametrize("name", GENERATIONS)
def test_the_compiler_names_the_default_limit_of_a_kernel(name: str) -> None:
    entry = GENERATIONS[name]
    block = (entry.scoped_vmem_bytes + 4 * MIB) // 2 // ROW_BYTES  # two of them in flight
    steps = GIB // (block * ROW_BYTES)

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[0:8, :] * 2

    def program(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            kernel,
            grid=(steps,),
            in_specs=[pl.BlockSpec((block, 1024), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((8, 1024), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((8 * steps, 1024), x.dtype),
        )(x)

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.jit(program).lower(argument(entry, block * steps)).compile()
    limit = re.search(r"limit (\d+(?:\.\d+)?)M", str(caught.value))
    if name == "v4":  # the limit is the whole of the vector memory
        assert f"memory (size={entry.vmem_bytes})" in str(caught.value) or "of 16.00M vmem" in str(caught.value)
        assert entry.scoped_vmem_bytes == entry.vmem_bytes
    else:
        assert limit is not None
        assert float(limit[1]) * MIB == entry.scoped_vmem_bytes
