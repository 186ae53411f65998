"""Programs that Shardy partitions: the limits that were met with its conversion to local shapes, on either jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.adapters.jax.screen.programs import (
    BATCH,
    EMBED,
    HIDDEN,
    LAYERS,
    LENGTH,
    array,
    collectives,
    constrain,
    flops,
    loops,
    screen,
)

LOCAL_FLOPS = 2 * 2 * BATCH * LENGTH * EMBED * HIDDEN / 8
ACTIVATIONS = BATCH * LENGTH * EMBED * 2 // 2
X = array((BATCH, LENGTH, EMBED), "dp")
SPLIT = array((BATCH, LENGTH, EMBED), "dp", "tp")
UP, DOWN = array((EMBED, HIDDEN), None, "tp"), array((HIDDEN, EMBED), "tp")
UPS = array((LAYERS, EMBED, HIDDEN), None, "tp")
DOWNS = array((LAYERS, HIDDEN, EMBED), None, "tp")


def test_a_row_parallel_product_whose_result_is_kept_in_parts_is_a_reduce_scatter() -> None:
    def scattered(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return constrain(jax.nn.gelu(x @ up) @ down, "dp", None, "tp")

    found = screen(scattered, X, UP, DOWN)
    assert collectives(found) == {("reduce-scatter over tp", ACTIVATIONS, ACTIVATIONS // 4, 4): 1}
    assert flops(found) == LOCAL_FLOPS


def test_a_row_parallel_product_with_a_residual_is_an_all_reduce() -> None:
    found = screen(lambda x, up, down: x + jax.nn.gelu(x @ up) @ down, X, UP, DOWN)
    assert collectives(found) == {("all-reduce over tp", ACTIVATIONS, ACTIVATIONS, 4): 1}
    assert flops(found) == LOCAL_FLOPS


@pytest.mark.parametrize("named", [True, False], ids=["constrained", "propagated"])
def test_weights_gathered_in_a_loop_are_gathered_once_each(named: bool) -> None:
    def layer(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        up, down = (constrain(w, None, None) for w in weights) if named else weights
        return constrain(x + jax.nn.gelu(x @ up) @ down, "dp", "tp"), None

    found = screen(lambda x, ups, downs: jax.lax.scan(layer, x, (ups, downs))[0], SPLIT, UPS, DOWNS)
    weight = EMBED * HIDDEN * 2
    assert collectives(found) == {("all-gather over tp", weight // 4, weight, 4): 2 * LAYERS}
    assert loops(found.program.schedule) == [(LAYERS, [])]
    assert flops(found) == LAYERS * LOCAL_FLOPS


def test_a_constraint_on_a_closed_over_value_in_a_loop() -> None:
    keys = array((BATCH, LENGTH, HIDDEN), "dp")

    def closed(x: jax.Array, ups: jax.Array, downs: jax.Array, keys: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            mine = constrain(keys, "dp", "tp")
            scores = jnp.einsum("btf,bsf->bts", x @ weights[0], mine)
            return x + jnp.einsum("bts,bsd->btd", scores, mine @ weights[1]), None

        return jax.lax.scan(layer, x, (ups, downs))[0]

    found = screen(closed, X, array((LAYERS, EMBED, HIDDEN)), array((LAYERS, HIDDEN, EMBED)), keys)
    assert collectives(found) == {("all-reduce over tp", ACTIVATIONS, ACTIVATIONS, 4): LAYERS}
    tokens = BATCH // 2 * LENGTH
    products = (EMBED * HIDDEN, HIDDEN * LENGTH / 4, HIDDEN * EMBED / 4, LENGTH / 4 * EMBED)
    assert flops(found) == LAYERS * 2 * tokens * sum(products)


def test_axes_that_change_places_are_a_permute_and_an_all_to_all() -> None:
    x = array((BATCH, BATCH, EMBED), "dp", "tp")
    found = screen(lambda x: constrain(constrain(x, "dp", "tp") * 2, "tp", "dp"), x)
    part = BATCH * BATCH * EMBED * 2 // 8
    assert collectives(found) == {
        ("collective-permute over dp+tp", part, part, 2): 1,
        ("all-to-all over tp", part, part, 2): 1,
    }


def test_memory_counts_shards_and_what_is_donated() -> None:
    found = screen(lambda x, up, down: x + jax.nn.gelu(x @ up) @ down, X, UP, DOWN, donate=(0,))
    memory: Any = found.program.memory
    weights = 2 * EMBED * HIDDEN * 2 // 4
    assert memory.argument_bytes == ACTIVATIONS + weights
    assert memory.output_bytes == memory.alias_bytes == ACTIVATIONS
    assert memory.total_bytes == ACTIVATIONS + weights
    # The result may be written over the donated argument, in parts or not at all.
    assert found.least_bytes == ACTIVATIONS + weights
