"""Ragged all-to-alls, as the live compiler writes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from adapters.jax.hlo.read import read_program
from adapters.jax.topologies import mesh_for
from tuner.layouts.layout import Layout
from tuner.program.program import Collective, CollectiveKind
from tuner.slices.names import parse_slice


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["v5e-2x4", "v5p-2x2x2"])
def test_a_ragged_all_to_all_counts_as_a_dense_one(name: str) -> None:
    mesh = mesh_for(parse_slice(name), Layout.of({"a": 2, "b": 4}))
    spec = P(("a", "b"))

    def argument(rows: int, columns: tuple[int, ...], dtype: object) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((8 * rows, *columns), dtype, sharding=NamedSharding(mesh, spec))

    run = jax.shard_map(
        lambda *arguments: jax.lax.ragged_all_to_all(*arguments, axis_name="b"),
        mesh=mesh,
        in_specs=(spec,) * 6,
        out_specs=spec,
        check_vma=False,
    )
    sizes = [argument(4, (), jnp.int32)] * 4
    rows = argument(1024, (512,), jnp.bfloat16), argument(2048, (512,), jnp.bfloat16)
    program = read_program(jax.jit(run).lower(*rows, *sizes).compile().as_text(), 8, None)
    (found,) = (node for node, _ in program.walk() if isinstance(node, Collective))
    assert found.kind is CollectiveKind.ALL_TO_ALL
    assert found.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (found.operand_bytes, found.result_bytes) == (1024 * 512 * 2, 2048 * 512 * 2)
