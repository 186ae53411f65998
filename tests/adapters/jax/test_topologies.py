import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from adapters.jax.topologies import device_position, devices_in_order, mesh_for, topology, topology_arguments
from tuner.errors import InvalidValue, ToolchainMissing, UnknownName
from tuner.layouts.layout import Layout
from tuner.layouts.space import Dimension, factorizations
from tuner.placements.placement import Placement
from tuner.slices.generations import GENERATIONS, generation_of_kind
from tuner.slices.hosts import host_bounds, host_grid, host_of, num_hosts
from tuner.slices.links import chip_coords
from tuner.slices.names import parse_slice
from tuner.slices.shapes import make_slice, refusal, standard_shapes
from tuner.slices.slice import Slice

# In a child, because the dump is an option of the whole process and shows only what was compiled in it.
DUMP = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from adapters.jax.topologies import mesh_for
from tuner.layouts.layout import Layout
from tuner.slices.names import parse_slice

slice_ = parse_slice(sys.argv[1])
mesh = mesh_for(slice_, Layout.of({"x": slice_.num_devices}))
argument = jax.ShapeDtypeStruct((8, 128), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
jax.jit(lambda x: x + 1).lower(argument).compile(compiler_options={"xla_dump_to": sys.argv[2]})
"""


def everything(generation: str) -> list[Slice]:
    return [make_slice(generation, shape) for shape in standard_shapes(generation)]


@pytest.mark.compiler
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_standard_shape_equals_the_compilers_topology(generation: str) -> None:
    for slice_ in everything(generation):
        # Thousands of chips say no more than hundreds; the largest of each generation is looked at below.
        if slice_.num_chips <= 1024:
            assert_equal_to_the_compilers(slice_)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["v4-4x4x8_twisted", "v5p-8x4x4_twisted", "v5p-4x8x8_twisted"])
def test_a_twisted_torus_equals_the_compilers_topology(name: str) -> None:
    assert_equal_to_the_compilers(parse_slice(name))


@pytest.mark.compiler
def test_the_compiler_reduces_over_a_twisted_torus_by_its_own_strategy() -> None:
    found = []
    for name in ("v5p-4x4x8", "v5p-4x4x8_twisted"):
        mesh = mesh_for(parse_slice(name), Layout.of({"all": 128}))
        run = jax.shard_map(lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=P("all"), out_specs=P())
        argument = jax.ShapeDtypeStruct((128 * 128, 128), np.float32, sharding=NamedSharding(mesh, P("all")))
        found.append("TwistedTorusND" in jax.jit(run).lower(argument).compile().as_text())
    assert found == [False, True]


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name", ["v4-16x16x16", "v5p-16x20x28", "v7x-16x24x24", "v5e-4x2", "v5e-2x8", "v6e-1x8", "v5e-16x8", "v5p-8x4x4"]
)
def test_the_largest_and_the_unsold_equal_the_compilers_topology(name: str) -> None:
    assert_equal_to_the_compilers(parse_slice(name))


def assert_equal_to_the_compilers(slice_: Slice) -> None:
    devices = topology(slice_).devices
    assert len(devices) == slice_.num_devices
    assert {generation_of_kind(device.device_kind).name for device in devices} == {slice_.generation_name}
    ordered = devices_in_order(slice_, devices)
    padding = [0] * (3 - len(slice_.shape))
    expected = [[*row, *padding] for row in chip_coords(slice_).repeat(slice_.cores, axis=0).tolist()]
    assert [list(device.coords) for device in ordered] == expected
    assert [device.core_on_chip for device in ordered] == [*range(slice_.cores)] * slice_.num_chips
    hosts = [device.process_index for device in ordered]
    assert hosts == [host_of(slice_, index) for index in range(slice_.num_devices)]
    assert len(set(hosts)) == num_hosts(slice_)
    assert tuple(np.multiply(host_grid(slice_), host_bounds(slice_))) == (*slice_.shape, 1)[:3]


@pytest.mark.compiler
def test_what_we_refuse_is_what_the_compiler_refuses() -> None:
    for name, entry in GENERATIONS.items():
        for x, y in np.ndindex(6, 6):
            shape = (int(x) + 1, int(y) + 1, 3)[: entry.dimensions]
            slice_ = Slice(generation_name=name, shape=shape, wrap=(False,) * entry.dimensions)
            if refusal(entry, shape) is None:
                assert len(topology(slice_).devices) == slice_.num_devices
            else:
                with pytest.raises(InvalidValue, match="not divisible"):
                    topology(slice_)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "wrap"),
    [("v5e-8x16", "y"), ("v6e-16x16", "xy"), ("v5p-4x4x4", "xyz"), ("v7x-2x2x1", ""), ("v5e-4x4", "")],
)
def test_the_compiler_is_told_which_axes_wrap(name: str, wrap: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", DUMP, name, str(tmp_path)],
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        timeout=120,
    )
    (dump,) = tmp_path.glob("*target_arguments.txt")
    text = dump.read_text()
    block = text[text.index("wrap {") :].split("{", 1)[1].split("}", 1)[0]
    # The protocol buffer's text form leaves false out.
    assert [line.strip() for line in block.strip().splitlines()] == [f"{axis}: true" for axis in wrap]


def test_arguments_are_lists_of_whole_numbers() -> None:
    arguments = topology_arguments(parse_slice("v5e-8x16"))
    assert arguments == {
        "platform": "tpu",
        "topology_name": "v5e:8x16",
        "chip_config_name": "default",
        "chips_per_host_bounds": [2, 2, 1],
        "wrap": [0, 1, 0],
    }
    assert all(type(number) is int for number in (*arguments["wrap"], *arguments["chips_per_host_bounds"]))
    assert topology_arguments(parse_slice("v7x-1x1x1"))["chips_per_host_bounds"] == [1, 1, 1]
    assert topology_arguments(parse_slice("v5p-4x4x4"))["topology_name"] == "v5:4x4x4"


def test_without_libtpu_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**_: object) -> None:
        raise RuntimeError("JAX TPU support not installed; cannot generate TPU topology.")

    monkeypatch.setattr(topologies, "get_topology_desc", absent)
    with pytest.raises(ToolchainMissing, match=r"pip install 'jax\[tpu\]'"):
        topology(parse_slice("v5e-4x4"))


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["v5e-4x4", "v7x-2x2x2"])
def test_every_factorization_of_sixteen_is_placeable(name: str) -> None:
    slice_ = parse_slice(name)
    rng = np.random.default_rng(0)
    dimensions = tuple(Dimension(name=axis, sizes=(1, 2, 4, 8, 16)) for axis in "abcd")
    shapes = list(factorizations(16, dimensions))
    assert len(shapes) == 35
    for shape in shapes:
        layout = Layout.of(dict(zip("abcd", shape, strict=True)))
        placement = Placement(devices=tuple(map(int, rng.permutation(16))))
        for placed, order in ((None, range(16)), (placement, placement.devices)):
            mesh = mesh_for(slice_, layout, placed)
            assert mesh.devices.shape == shape
            assert mesh.axis_names == ("a", "b", "c", "d")
            assert mesh.axis_types == (AxisType.Auto,) * 4
            assert [device_position(device, slice_) for device in mesh.devices.flat] == list(order)


@pytest.mark.compiler
def test_meshes_of_another_size_are_refused() -> None:
    slice_ = parse_slice("v5e-2x4")
    with pytest.raises(InvalidValue, match="4 devices, v5e-2x4 has 8"):
        mesh_for(slice_, Layout.of({"a": 4}))
    with pytest.raises(InvalidValue, match="covers 4 devices"):
        mesh_for(slice_, Layout.of({"a": 8}), Placement(devices=(0, 1, 2, 3)))
    with pytest.raises(InvalidValue, match="do not make up"):
        devices_in_order(slice_, topology(slice_).devices[:7])
    with pytest.raises(UnknownName, match="no TPU generation has device kind 'TPU v9'"):
        generation_of_kind("TPU v9")
