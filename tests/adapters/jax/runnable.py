"""Workloads that run, compute something else, hang, die or need too much, for tests of the runner."""

from __future__ import annotations

import os
import time

import jax
import jax.numpy as jnp

from adapters.jax.workload import Argument, FunctionWorkload, Sharding
from tuner.layouts.space import Dimension

# A model may well make an array when it is imported (jax-ml/jax#25768).
AT_IMPORT = jnp.ones(3) + 1

SIZE = 64


def right(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    return s.constrain(jnp.tanh(x @ weights), "batch", None)


def slow(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    def body(_: int, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weights)

    return s.constrain(jax.lax.fori_loop(0, 400, body, x), "batch", None)


def wrong(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    return right(s, weights, x) * (1.0 if s.layout.devices == 1 else 1.01)


def not_finite(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    return right(s, weights, x) / 0.0


def hangs(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    time.sleep(600)
    return x


def dies(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    os._exit(7)


def dies_on_the_second_host(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    if jax.process_index() == 1:
        raise RuntimeError("the second host has no luck")
    return right(s, weights, x)


def too_much(s: Sharding, weights: jax.Array, x: jax.Array) -> jax.Array:
    huge = jnp.broadcast_to(x.sum(), (1 << 44,)) * jnp.arange(1 << 44, dtype=jnp.float32)
    return x + jnp.sort(huge)[:1]


def _workload(function, **changes) -> FunctionWorkload:  # type: ignore[no-untyped-def]
    values = {
        "model": function.__name__,
        "function": function,
        "arguments": (
            Argument(shape=(SIZE, SIZE), names=(None, None), dtype="float32"),
            Argument(shape=(SIZE, SIZE), names=("batch", None), dtype="float32"),
        ),
        "dimensions": (Dimension(name="data", sizes=(1, 2, 4, 8)), Dimension(name="other", sizes=(1, 2, 4, 8))),
        "rules": {"batch": ("data",)},
        "results": ("batch", None),
        "donate": (1,),
    }
    return FunctionWorkload(**values | changes)


fine = _workload(right)
fine_slow = _workload(slow)
computes_something_else = _workload(wrong)
divides_by_zero = _workload(not_finite)
never_ends = _workload(hangs)
ends_the_process = _workload(dies)
fails_on_one_host = _workload(dies_on_the_second_host)
needs_too_much = _workload(too_much)
