"""The very callable that the runner times, compiled ahead of time for a TPU."""

from __future__ import annotations

import jax
import pytest

import adapters.jax.bench as benches
from adapters.jax.arguments import argument_shardings
from adapters.jax.inputs import SCALAR, arrays, filler
from adapters.jax.step import Step
from adapters.jax.topologies import auto_mesh, mesh_for
from adapters.models.registry import resolve
from tests.adapters.jax.runnable import fine
from tuner.layouts.layout import Layout
from tuner.ports import WorkloadSpec
from tuner.slices.names import parse_slice


@pytest.mark.compiler
@pytest.mark.parametrize("axes", [{"cfg": 2, "ulysses": 4, "tensor": 1, "context": 2}, {"ring": 4, "tensor": 4}])
def test_what_is_timed_compiles_for_v5e_4x4(axes: dict[str, int]) -> None:
    """The runner calls `Step.lower(platform).compile(...)` and `filler`; both are compiled here as it does on a TPU."""
    workload, slice_ = resolve(WorkloadSpec(model="tiny", parameters={"dtype": "bfloat16"})), parse_slice("v5e-4x4")
    layout = Layout.of(
        {name: axes.get(name, 1) for name in ("data", "cfg", "ring", "context", "ulysses", "tensor")},
        workload.space.defaults(),
    )
    step = workload.step(layout, mesh_for(slice_, layout), kernels=True)
    run = step.lower("tpu").compile()
    assert run.memory_analysis().temp_size_in_bytes >= 0
    assert benches._feeds(step, run)  # latents in, latents out: steps are timed as a loop of denoising steps
    assert "all-" in run.as_text()
    assert filler(step.arguments) is not None


def test_arguments_are_the_same_however_they_are_sharded() -> None:
    made = []
    for data in (1, 2, 4):
        layout = Layout.of({"data": data, "other": 1})
        step = fine.step(layout, auto_mesh(jax.devices()[:data], layout), kernels=True)
        made.append(list(arrays(step.arguments)))
        assert all(a.sharding == b.sharding for a, b in zip(made[-1], step.arguments, strict=True))
    for other in made[1:]:
        assert all((jax.device_get(a) == jax.device_get(b)).all() for a, b in zip(made[0], other, strict=True))


def test_arguments_have_the_size_that_products_keep() -> None:
    layout = Layout.of({"data": 1, "other": 1})
    step = fine.step(layout, auto_mesh(jax.devices()[:1], layout), kernels=True)
    weights, x = (jax.device_get(leaf) for leaf in arrays(step.arguments))
    assert abs(x.std() - 1) < 0.05
    assert abs(weights.std() - 64**-0.5) < 0.01
    assert abs(x.mean()) < 0.05
    assert SCALAR not in (0, 1)


def test_only_a_result_like_the_donated_argument_is_fed_back() -> None:
    layout = Layout.of({"data": 2, "other": 1})
    mesh = auto_mesh(jax.devices()[:2], layout)
    step = fine.step(layout, mesh, kernels=True)
    assert benches._feeds(step, step.lower("cpu").compile())
    smaller = Step(function=lambda w, x: x[:2], arguments=step.arguments, donate=(1,))
    assert not benches._feeds(smaller, smaller.lower("cpu").compile())
    assert len(argument_shardings(step)) == 2
