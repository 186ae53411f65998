import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

import examples.block
import examples.two_stages
from adapters.jax.topologies import auto_mesh
from adapters.jax.workload import Argument, FunctionWorkload, Sharding
from adapters.models.registry import resolve
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.layouts.space import Dimension, enumerate_layouts
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason

EXAMPLES = {"block": examples.block.workload, "two_stages": examples.two_stages.workload}


def small(workload: FunctionWorkload) -> FunctionWorkload:
    """The same workload with every dimension of 64 or more cut down, so that a CPU runs it in no time."""

    def cut(argument: Argument) -> Argument:
        shape = tuple(min(length, 16) for length in argument.shape)
        return Argument(shape=shape, names=argument.names, dtype="float32")

    arguments = jax.tree.map(cut, workload.arguments, is_leaf=lambda node: isinstance(node, Argument))
    return dataclasses.replace(workload, arguments=arguments)


def layouts(workload: FunctionWorkload, devices: int) -> list[Layout]:
    outcomes = enumerate_layouts(workload.space, devices, workload.verdict)
    return [outcome for outcome in outcomes if isinstance(outcome, Layout)]


def values(workload: FunctionWorkload) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda a: rng.standard_normal(a.shape, dtype=np.float32) / 4,
        workload.arguments,
        is_leaf=lambda node: isinstance(node, Argument),
    )


def run(workload: FunctionWorkload, layout: Layout, arguments: Any) -> np.ndarray:
    mesh = auto_mesh(np.array(jax.devices()[: layout.devices]), layout)
    step = workload.step(layout, mesh, kernels=False)
    placed = jax.tree.map(lambda value, leaf: jax.device_put(value, leaf.sharding), arguments, step.arguments)
    return np.asarray(jax.jit(step.function, out_shardings=step.out_shardings)(*placed))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_layout_of_the_examples_computes_the_same(name: str) -> None:
    workload = small(EXAMPLES[name])
    arguments = values(workload)
    (alone,) = layouts(workload, 1)
    expected = run(workload, alone, arguments)
    sharded = layouts(workload, 8)
    assert len(sharded) == 4
    for layout in sharded:
        np.testing.assert_allclose(
            run(workload, layout, arguments), expected, rtol=1e-5, atol=1e-5, err_msg=str(layout)
        )


def test_the_example_is_found_by_name() -> None:
    assert resolve(WorkloadSpec(model="examples.block:workload")) is examples.block.workload


def workload(
    names: tuple[str | None, ...], shape: tuple[int, ...], rules: Mapping[str, tuple[str, ...]]
) -> FunctionWorkload:
    def function(sharding: Sharding, params: dict[str, jax.Array]) -> jax.Array:
        return params["q"]

    return FunctionWorkload(
        model="probe",
        function=function,
        arguments=({"q": Argument(shape=shape, names=names)},),
        dimensions=(Dimension(name="data", sizes=(1, 2, 4, 8)), Dimension(name="tensor", sizes=(1, 2, 4, 8))),
        rules=rules,
    )


def test_an_indivisible_dimension_is_named_with_what_would_be_legal() -> None:
    probe = workload((None, "heads"), (64, 12), {"heads": ("tensor",)})
    refusal = probe.verdict(Layout.of({"data": 1, "tensor": 8}))
    assert isinstance(refusal, Rejection)
    assert refusal.reason is RejectReason.INDIVISIBLE
    assert refusal.detail == (
        "0/q: dimension 1 (heads) of length 12 does not divide over mesh axes tensor of size 8; "
        "legal sizes: 1, 2, 3, 4, 6"
    )
    assert dict(refusal.numbers) == {"dimension": 1, "length": 12, "size": 8}
    with pytest.raises(InvalidValue, match="legal sizes"):
        probe.step(
            Layout.of({"data": 1, "tensor": 8}),
            auto_mesh(np.array(jax.devices()), Layout.of({"data": 1, "tensor": 8})),
            kernels=False,
        )


def test_two_rules_on_one_array_that_take_one_axis_are_a_conflict() -> None:
    probe = workload(("heads", "mlp"), (64, 64), {"heads": ("tensor",), "mlp": ("data", "tensor")})
    refusal = probe.verdict(Layout.of({"data": 4, "tensor": 2}))
    assert isinstance(refusal, Rejection)
    assert refusal.reason is RejectReason.CONFLICTING_RULES
    assert "rules 'heads' and 'mlp' both put mesh axis 'tensor' (size 2)" in refusal.detail
    assert probe.verdict(Layout.of({"data": 8, "tensor": 1})) is None


def test_a_rule_over_an_axis_that_is_not_there_is_misuse() -> None:
    with pytest.raises(InvalidValue, match=r"names mesh axes \['model'\].*legal: \['data', 'tensor'\]"):
        workload(("heads",), (64,), {"heads": ("model",)})


def test_the_identity_follows_the_declaration_and_the_source() -> None:
    one = workload(("heads",), (64,), {"heads": ("tensor",)})
    assert one.identity == workload(("heads",), (64,), {"heads": ("tensor",)}).identity
    assert one.identity != workload(("heads",), (128,), {"heads": ("tensor",)}).identity
    assert one.identity != dataclasses.replace(one, revision="2").identity
    assert one.source != examples.block.workload.source != examples.two_stages.workload.source


def test_what_is_deployed_may_be_declared() -> None:
    from tuner.slices.names import parse_slice

    slice_ = parse_slice("v5e-2x4")
    block = examples.block.workload
    assert str(block.baselines(slice_)["A"]) == "data=8"
    declared = dataclasses.replace(block, deployed={"tensor": 8})
    assert str(declared.baselines(slice_)["A"]) == "tensor=8"
    assert declared.baselines(parse_slice("v5e-2x2")) == {}
