"""Programs of one `shard_map` with collectives of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from adapters.jax.screen import shardy
from adapters.jax.screen.facts import screened
from adapters.jax.screen.reading import read
from tests.adapters.jax.screen.programs import P, array, collectives, flops, kernels, loops, over_all, screen

LENGTH, EMBED, HEADS, LAYERS = 256, 128, 8, 3
X = array((2, LENGTH, EMBED), "dp", "tp")
PART = LENGTH * EMBED * 2 // 4
LAX = jax.lax
SENDS: dict[str, tuple[Any, Any]] = {
    "all-gather over tp": (lambda x: LAX.all_gather(x, "tp", axis=1, tiled=True), (PART, 4 * PART, 4)),
    "all-gather over dp+tp": (lambda x: LAX.all_gather(x, ("dp", "tp"), axis=1, tiled=True), (PART, 8 * PART, 8)),
    "all-to-all over tp": (lambda x: LAX.all_to_all(x, "tp", 2, 1, tiled=True), (PART, PART, 4)),
    "all-reduce over dp": (lambda x: LAX.psum(x, "dp"), (PART, PART, 2)),
    "reduce-scatter over tp": (
        lambda x: LAX.psum_scatter(x, "tp", scatter_dimension=1, tiled=True),
        (PART, PART // 4, 4),
    ),
    "collective-permute over tp": (
        lambda x: LAX.ppermute(x, "tp", [(i, (i + 1) % 4) for i in range(4)]),
        (PART, PART, 2),
    ),
}


def local(function: Any) -> Any:
    return over_all(function, P("dp", "tp"), P("dp", "tp"))


@pytest.mark.parametrize("name", SENDS)
def test_every_collective_has_its_bytes_and_axes(name: str) -> None:
    send, sizes = SENDS[name]
    assert collectives(screen(local(send), X)) == {(name, *sizes): 1}


def test_groups_are_those_of_the_mesh() -> None:
    (node,) = [n for n, _ in screen(local(lambda x: LAX.psum(x, "dp")), X).program.walk() if hasattr(n, "groups")]
    assert node.groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    (node,) = [
        n for n, _ in screen(local(SENDS["collective-permute over tp"][0]), X).program.walk() if hasattr(n, "pairs")
    ]
    assert set(node.pairs) == {(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)}


def test_a_part_of_a_sum_is_a_reduce_scatter() -> None:
    def part(x: jax.Array) -> jax.Array:
        return LAX.dynamic_slice_in_dim(LAX.psum(x, "tp"), LAX.axis_index("tp") * 16, 16, axis=1)

    found = screen(local(part), X)
    assert collectives(found) == {("all-reduce over tp", PART, PART // 4, 4): 1}
    (node,) = [n for n, _ in found.program.walk() if hasattr(n, "groups")]
    assert (node.kind, node.written) == ("reduce-scatter", "all-reduce")


def test_what_does_not_change_in_a_loop_counts_once() -> None:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ LAX.all_gather(w, "tp", axis=0, tiled=True) @ (w.T @ w)), None

        return LAX.scan(body, x, None, length=5)[0]

    weights = array((EMBED, EMBED), "tp")
    found = screen(over_all(step, (P("dp", None), P("tp")), P("dp", None)), array((2, LENGTH, EMBED), "dp"), weights)
    bytes_ = EMBED * EMBED * 2
    assert collectives(found) == {("all-gather over tp", bytes_ // 4, bytes_, 4): 1}
    assert flops(found) == 2 * EMBED * EMBED * EMBED / 4 + 5 * 2 * 2 * LENGTH * EMBED * EMBED


def test_what_nobody_reads_and_what_is_there_already_do_not_count() -> None:
    @jax.jit
    def helper(x: jax.Array) -> jax.Array:
        return LAX.psum(x * 2, "tp")

    def step(x: jax.Array) -> jax.Array:
        def body(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
            used, dead = carry
            return (used + helper(used) * helper(used), dead + LAX.all_to_all(dead, "tp", 2, 1, tiled=True).sum()), None

        LAX.all_gather(x, "dp", axis=0)
        return LAX.scan(body, (x, x), None, length=2)[0][0]

    assert collectives(screen(local(step), X)) == {("all-reduce over tp", PART, PART, 4): 2}


def test_attention_is_found_and_an_activation_is_none() -> None:
    def attend(q: jax.Array, k: jax.Array, valid: int | None) -> jax.Array:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32)
        if valid is not None:
            scores = jnp.where(jnp.arange(k.shape[1]) < valid, scores, -1e9)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), k)

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        heads = x[0].reshape(-1, HEADS, EMBED // HEADS).swapaxes(0, 1)
        out = attend(heads, attend(heads, heads, None), 60).swapaxes(0, 1).reshape(1, -1, EMBED)
        return jax.nn.silu(out @ w) @ w

    found = screen(over_all(step, (P("dp", "tp"), P()), P("dp", "tp")), X, array((EMBED, EMBED)))
    sizes = [(k.heads, k.q_len, k.kv_len, k.head_dim, k.masked) for k in kernels(found)]
    assert sizes == [(8, 64, 64, 16, False), (8, 64, 64, 16, True)]
    assert flops(found) == sum(k.flops for k in kernels(found)) + 2 * 2 * 64 * EMBED * EMBED


def test_loops_nest_and_count_down() -> None:
    def step(x: jax.Array) -> jax.Array:
        def outer(i: jax.Array, x: jax.Array) -> jax.Array:
            return LAX.while_loop(lambda c: c[0] > 2, lambda c: (c[0] - 3, c[1] @ c[1]), (jnp.int32(10), x))[1] + i

        return LAX.fori_loop(2, 7, outer, x)

    square = array((8, 64, 64), ("dp", "tp"))
    found = screen(over_all(step, P(("dp", "tp")), P(("dp", "tp"))), square)
    assert loops(found.program.schedule) == [(5, [(3, [])])]
    assert flops(found) == 5 * 3 * 2 * 64**3


def test_of_two_branches_the_cheaper_counts() -> None:
    def step(x: jax.Array) -> jax.Array:
        return LAX.cond(x[0, 0, 0] > 0, lambda x: x @ x @ x, lambda x: LAX.psum(x @ x, "tp"), x)

    found = screen(over_all(step, P(("dp", "tp")), P(("dp", "tp"))), array((8, 64, 64), ("dp", "tp")))
    assert flops(found) == 2 * 64**3
    assert not collectives(found)


def test_a_convolution_counts_only_products_with_values() -> None:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return LAX.conv_general_dilated(x, w, window_strides=(2, 1), padding=((0, 0), (1, 1)))

    image, kernel = array((8, 3, 8, 8), ("dp", "tp")), array((16, 3, 2, 3))
    found = screen(over_all(step, (P(("dp", "tp")), P()), P(("dp", "tp"))), image, kernel)
    rows, columns = 4 * 2, 8 * 3 - 2
    assert flops(found) == 2 * rows * columns * 16 * 3


def test_eight_bit_products_count_half() -> None:
    def step(x: jax.Array) -> jax.Array:
        return LAX.dot_general(x[0], x[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)

    found = screen(over_all(step, P(("dp", "tp")), P(("dp", "tp"))), array((8, 64, 64), ("dp", "tp"), dtype=jnp.int8))
    assert flops(found) == 64**3


def test_only_the_used_part_of_an_argument_is_read() -> None:
    def step(x: jax.Array, table: jax.Array) -> jax.Array:
        return LAX.fori_loop(0, 3, lambda i, x: x + LAX.dynamic_index_in_dim(table, i, keepdims=False), x)

    found = screen(
        over_all(step, (P("tp"), P(None, "tp")), P("tp")), array((64, EMBED), "tp"), array((100, 64, EMBED), None, "tp")
    )
    part = 16 * EMBED * 2
    assert found.least_bytes == part + 3 * part + part


def test_a_program_of_one_shard_map_is_read_the_same_with_and_without_propagation() -> None:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        table = jnp.asarray([[1.5, 2.5]] * EMBED).sum(axis=1).astype(x.dtype)

        def body(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return LAX.ppermute(x @ LAX.all_gather(w, "tp", tiled=True), "tp", [(0, 1), (1, 0)]) * table, None

        return LAX.scan(body, x, w)[0]

    def lowered() -> Any:
        function = over_all(step, (P("dp", "tp"), P(None, "tp")), P("dp", "tp"))
        weights = array((LAYERS, EMBED, EMBED), None, "tp")
        jitted = jax.jit(function, out_shardings=X.sharding, donate_argnums=0)
        return jitted.trace(X, weights).lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")

    quick, thorough = lowered(), lowered()
    assert shardy.is_manual(quick)
    shardy.partition(quick)
    with thorough.context:
        passes = f"builtin.module({shardy._PARTITION}{shardy._CLEAN})"
        shardy.passmanager.PassManager.parse(passes).run(thorough.operation)
    first, second = (screened(read(module), devices=8, digest="") for module in (quick, thorough))
    assert first == second
    assert flops(first) == LAYERS * 2 * 64 * EMBED * EMBED


def test_arguments_that_must_move_first_are_propagated() -> None:
    function = over_all(lambda x: x * 2, P("dp"), P("dp"))
    found = screen(function, X)
    assert collectives(found) == {("all-gather over tp", PART, 4 * PART, 4): 1}
