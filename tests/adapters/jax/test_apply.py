import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from adapters.jax.apply import WrongToolchain, apply, leaf_path
from adapters.jax.arguments import argument_shardings
from adapters.jax.live import WrongDevices
from adapters.jax.step import Step
from adapters.jax.topologies import auto_mesh, topology
from tests.adapters.jax.fakes import fake_devices
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Dimension, factorizations
from tuner.placements.placement import Placement
from tuner.plans import files
from tuner.plans.plan import Constraints, Evidence, Plan, PlanState, StoredPlan
from tuner.plans.toolchain import Toolchain, installed_toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import ArgumentSharding
from tuner.slices.names import parse_slice

KERNEL = ArgumentSharding(path="params/blocks/kernel", shape=(16, 8), dtype="float32", spec=(("cfg",), ("sp", "tp")))
BIAS = ArgumentSharding(path="params/blocks/bias", shape=(8,), dtype="float32", spec=((),))
INPUT = ArgumentSharding(path="latents", shape=(8, 16), dtype="float32", spec=(("cfg", "sp"), ("tp",)))


def plan_for(
    name: str = "v5e-2x4",
    axes: dict[str, int] | None = None,
    placement: tuple[int, ...] | None = None,
    arguments: tuple[ArgumentSharding, ...] = (KERNEL, BIAS, INPUT),
    toolchain: Toolchain = Toolchain(jax="0", jaxlib="0", libtpu="0"),  # noqa: B008
) -> Plan:
    slice_ = parse_slice(name)
    axes = axes or {"cfg": 2, "sp": 2, "tp": 2}
    return Plan(
        workload=WorkloadKey(model="block", shape=""),
        slice=slice_,
        toolchain=toolchain,
        constraints=Constraints(),
        candidate=Candidate(layout=Layout.of(axes), compiler_options=(("xla_tpu_enable_x", "true"),)),
        placement=Placement(devices=placement or tuple(range(slice_.num_devices))),
        arguments=arguments,
        evidence=Evidence.PREDICTED,
        step_s=1.0,
        memory_bytes=None,
        details={},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_two_lines_run_a_plan_on_cpu_devices() -> None:
    plan = plan_for(placement=(3, 1, 2, 0, 7, 6, 5, 4))
    applied = apply(plan)
    devices = jax.devices()
    assert [device.id for device in applied.mesh.devices.flat] == [devices[i].id for i in plan.placement.devices]
    tree = {"blocks": {"kernel": jnp.arange(128.0).reshape(16, 8), "bias": jnp.ones(8)}}
    latents = jnp.arange(128.0).reshape(8, 16)
    placed = jax.device_put(tree, applied.shardings_for(tree, "params"))
    x = jax.device_put(latents, applied.shardings["latents"])
    assert x.sharding.spec == PartitionSpec(("cfg", "sp"), "tp")
    assert {shard.data.shape for shard in placed["blocks"]["kernel"].addressable_shards} == {(8, 2)}
    out = jax.jit(lambda params, x: x @ params["blocks"]["kernel"] + params["blocks"]["bias"])(placed, x)
    expected = np.asarray(latents) @ np.asarray(tree["blocks"]["kernel"]) + 1
    np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-6)


def test_what_a_step_was_compiled_with_is_what_a_plan_applies() -> None:
    layout = Layout.of({"cfg": 2, "sp": 2, "tp": 2})
    mesh = auto_mesh(jax.devices(), layout)

    def leaf(shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    params = {"blocks": [{"kernel": leaf((16, 8), None, ("sp", "tp"))}, {"kernel": leaf((16, 8))}]}
    step = Step(
        function=lambda params, latents: latents @ params["blocks"][0]["kernel"],
        arguments=(params, leaf((8, 16), "cfg")),
    )
    applied = apply(plan_for(arguments=argument_shardings(step)))
    assert applied.mesh == mesh
    for argument, prefix in zip(step.arguments, ("params", "latents"), strict=True):
        found = applied.shardings_for(argument, prefix)
        assert jax.tree.structure(found) == jax.tree.structure(argument)
        same = jax.tree.map(lambda a, b: a.sharding.is_equivalent_to(b, len(a.shape)), argument, found)
        assert jax.tree.all(same)


def test_a_document_a_stored_plan_and_a_plan_apply_alike() -> None:
    plan = plan_for(placement=(3, 1, 2, 0, 7, 6, 5, 4))
    document = json.loads(json.dumps(plan.to_json()))
    stored = StoredPlan(plan=plan, id=1, version=1, state=PlanState.ACTIVE, stored_at=plan.created_at)
    first = apply(plan)
    for other in (document, stored):
        applied = apply(other)
        assert applied.mesh == first.mesh
        assert applied.shardings == first.shardings
        assert applied.compiler_options == {"xla_tpu_enable_x": "true"}
    with pytest.raises(InvalidValue, match="incomplete"):
        apply({key: value for key, value in document.items() if key != "placement"})


def test_a_plan_keeps_auto_axes_on_every_jax() -> None:
    plan = plan_for()
    assert set(plan.to_json()["axis_types"].values()) == {"auto"}
    assert apply(plan).axis_types == (AxisType.Auto,) * 3


@pytest.mark.parametrize("live", ["v5e-2x4", "v5e-4x2"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_order_of_devices_gives_the_same_physical_mesh(live: str, seed: int) -> None:
    plan = plan_for(placement=(5, 1, 2, 0, 7, 6, 3, 4))
    mesh = apply(plan, fake_devices(parse_slice(live), seed=seed)).mesh
    coords = np.array([device.coords for device in mesh.devices.flat])
    planned = np.array([(*plan.slice.coords(index), 0) for index in plan.placement.devices])
    assert coords.tolist() == (planned if live == "v5e-2x4" else planned[:, [1, 0, 2]]).tolist()
    assert mesh.devices.shape == (2, 2, 2)


def test_the_two_hosts_of_a_slice_share_one_mesh() -> None:
    plan = plan_for("v5p-2x2x2")
    mesh = apply(plan, fake_devices(plan.slice, seed=4)).mesh
    assert [device.process_index for device in mesh.devices.flat] == [0] * 4 + [1] * 4


def test_both_cores_of_v7x() -> None:
    plan = plan_for("v7x-2x2x1", placement=(1, 0, 3, 2, 5, 4, 7, 6))
    mesh = apply(plan, fake_devices(plan.slice, seed=4)).mesh
    assert [device.core_on_chip for device in mesh.devices.flat] == [1, 0] * 4
    assert [device.coords[:2] for device in mesh.devices.flat][::2] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_every_factorization_of_sixteen_applies() -> None:
    dimensions = tuple(Dimension(name=axis, sizes=(1, 2, 4, 8, 16)) for axis in "abcd")
    live = fake_devices(parse_slice("v5e-4x4"), seed=9)
    placement = tuple(map(int, np.random.default_rng(1).permutation(16)))
    for sizes in factorizations(16, dimensions):
        axes = dict(zip("abcd", sizes, strict=True))
        plan = plan_for("v5e-4x4", axes=axes, placement=placement, arguments=())
        mesh = apply(plan, live).mesh
        assert mesh.devices.shape == sizes
        assert [plan.slice.device(device.coords[:2]) for device in mesh.devices.flat] == list(placement)


@pytest.mark.parametrize(
    ("planned", "live"),
    [("v5e-4x4", "v5p-2x2x4"), ("v5p-2x2x4", "v5e-4x4"), ("v5e-4x4", "v5e-2x8"), ("v5e-2x8", "v5e-4x4")],
)
def test_sixteen_chips_are_not_sixteen_chips(planned: str, live: str) -> None:
    plan = plan_for(planned, axes={"cfg": 2, "sp": 4, "tp": 2})
    with pytest.raises(WrongDevices, match=f"plan is for {planned}.* the devices are {live}"):
        apply(plan, fake_devices(parse_slice(live)))


@pytest.mark.parametrize("kind", ["TPU v5 lite", "TPU v5e"])
def test_a_plan_for_v5e_knows_the_chip_by_both_names(kind: str) -> None:
    plan = plan_for()
    assert math.prod(apply(plan, fake_devices(plan.slice, kind=kind)).mesh.devices.shape) == 8
    with pytest.raises(WrongDevices, match="v5p-2x2x2: another generation"):
        apply(plan, fake_devices(parse_slice("v5p-2x2x2"), kind="TPU v5"))


def test_a_tree_that_differs_from_the_plans_is_refused_by_path() -> None:
    applied = apply(plan_for())
    with pytest.raises(InvalidValue, match="no argument 'params/blocks/kernal'; nearest: params/blocks/kernel"):
        applied.shardings_for({"blocks": {"kernal": jnp.ones((16, 8))}}, "params")
    with pytest.raises(InvalidValue, match=r"'latents' has shape \(8, 32\), the plan is for \(8, 16\)"):
        applied.shardings_for({"latents": jax.ShapeDtypeStruct((8, 32), jnp.float32)})
    found = applied.shardings_for({"latents": jax.ShapeDtypeStruct((8, 16), jnp.float32)})
    assert found == {"latents": NamedSharding(applied.mesh, PartitionSpec(("cfg", "sp"), "tp"))}


def test_a_sharding_over_an_unknown_axis_is_refused_by_path() -> None:
    wrong = replace(INPUT, spec=(("pp",), ()))
    with pytest.raises(InvalidValue, match=r"'latents' is sharded over \['pp'\]; the plan's mesh has"):
        apply(plan_for(arguments=(wrong,)))


def test_paths_of_every_kind_of_key() -> None:
    leaves, _ = jax.tree_util.tree_flatten_with_path(({"a": [1, 2]}, 3))
    assert [leaf_path(keys) for keys, _ in leaves] == ["0/a/0", "0/a/1", "1"]
    assert leaf_path((), "latents") == "latents"


@pytest.mark.compiler
@pytest.mark.parametrize("live", ["v5e-2x4", "v5e-4x2"])
def test_a_plan_compiles_for_the_devices_that_it_was_put_on(live: str) -> None:
    devices: list[Any] = list(topology(parse_slice(live)).devices)
    np.random.default_rng(7).shuffle(devices)  # type: ignore[arg-type]
    plan = plan_for(placement=(5, 1, 2, 0, 7, 6, 3, 4))
    applied = apply(plan, devices)
    argument = jax.ShapeDtypeStruct(INPUT.shape, jnp.float32, sharding=applied.shardings["latents"])
    compiled = jax.jit(lambda x: x.sum(axis=1)).lower(argument).compile()
    (sharding,) = compiled.input_shardings[0]
    assert list(sharding.mesh.devices.flat) == list(applied.mesh.devices.flat)
    assert "all-reduce" in compiled.as_text()


def test_another_toolchain_is_said_and_refused_on_request(caplog: pytest.LogCaptureFixture) -> None:
    here = installed_toolchain()
    assert apply(plan_for(toolchain=here)).differences == ()
    assert not caplog.records
    older = plan_for(toolchain=replace(here, libtpu="0.0.1"))
    assert apply(older).differences == (f"libtpu 0.0.1 is now {here.libtpu}",)
    assert f"libtpu 0.0.1 is now {here.libtpu}" in caplog.text
    with pytest.raises(WrongToolchain, match=r"libtpu 0\.0\.1 is now"):
        apply(older, require_toolchain=True)


def test_a_file_applies_as_its_plan_does_and_a_changed_one_does_not(tmp_path: Path) -> None:
    plan, path = plan_for(), tmp_path / "plan.json"
    path.write_text(files.dump(plan))
    assert apply(path).mesh == apply(json.loads(path.read_text())).mesh == apply(plan).mesh
    path.write_text(path.read_text().replace('"step_s": 1', '"step_s": 2'))
    with pytest.raises(InvalidValue, match=r"plan\.json: changed since it was written"):
        apply(path)
    with pytest.raises(InvalidValue, match="changed since it was written"):
        apply(json.loads(path.read_text()))
