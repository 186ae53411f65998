"""JAX's default order, against `create_device_mesh` itself on the compiler's topologies."""

import json
import math
import os
import subprocess
import sys
from importlib import metadata

import pytest

from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.placements.default import jax_default, row_major
from tuner.slices.slice import Slice


def layout(*sizes):
    return Layout.of({f"a{k}": size for k, size in enumerate(sizes)})


def make(generation, *shape):
    return Slice(generation_name=generation, shape=shape, wrap=(False,) * len(shape))


def test_rows_are_the_default_of_a_square_mesh():
    slice_ = make("v5e", 4, 4)
    default = jax_default(slice_, layout(4, 4))
    # The last mesh axis takes x, so its groups are the rows of one y.
    assert [slice_.coords(device) for device in default.devices[:4]] == [(0, 0), (1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("mesh", [(2, 8), (4, 2, 2), (8, 2), (2, 2, 2, 2), (16, 1), (1, 16)])
def test_every_factorization_of_sixteen_is_placeable(mesh):
    slice_ = make("v5e", 4, 4)
    split, whole = jax_default(slice_, layout(*mesh)), jax_default(slice_, layout(*mesh), split=False)
    assert sorted(split.devices) == sorted(whole.devices) == list(range(16))
    if 16 in mesh:
        assert split.description == whole.description == "JAX's default order"
    else:
        assert split.description.endswith("axes split")
        assert whole.description.startswith("row-major")


def test_a_wrong_number_of_devices_is_refused():
    with pytest.raises(InvalidValue, match="8 devices"):
        jax_default(make("v5e", 4, 4), layout(8))


def test_row_major_counts_the_last_coordinate_first():
    slice_ = make("v5e", 2, 4)
    assert [slice_.coords(device) for device in row_major(slice_).devices[:3]] == [(0, 0), (0, 1), (0, 2)]


SLICES = [
    ("v5e", "v5e", (2, 2)),
    ("v5e", "v5e", (2, 4)),
    ("v5e", "v5e", (4, 4)),
    ("v6e", "v6e", (2, 2)),
    ("v6e", "v6e", (2, 4)),
    ("v6e", "v6e", (4, 4)),
    ("v5p", "v5", (2, 2, 1)),
    ("v5p", "v5", (2, 2, 2)),
    ("v5p", "v5", (2, 2, 4)),
    ("v4", "v4", (2, 2, 1)),
    ("v4", "v4", (2, 2, 2)),
    ("v4", "v4", (2, 2, 4)),
    ("v7x", "tpu7x", (2, 2, 1)),
    ("v7x", "tpu7x", (2, 2, 2)),
    ("v7x", "tpu7x", (2, 2, 4)),
]

ASK = """
import json, sys
from jax.experimental import mesh_utils, topologies
cases = json.load(sys.stdin)
out = []
for name, config, meshes in cases:
    devices = topologies.get_topology_desc(platform="tpu", topology_name=name, chip_config_name=config).devices
    for mesh in meshes:
        for split in (False, True):
            try:
                grid = mesh_utils.create_device_mesh(mesh, devices, allow_split_physical_axes=split)
                out.append([[*d.coords, d.core_on_chip] for d in grid.flat])
            except NotImplementedError:
                out.append(None)
json.dump(out, sys.stdout)
"""


def factorizations(n, length):
    if length == 1:
        return [(n,)]
    return [(d, *rest) for d in range(1, n + 1) if n % d == 0 for rest in factorizations(n // d, length - 1)]


@pytest.mark.compiler
def test_equal_to_create_device_mesh_for_every_mesh_up_to_four_axes():
    cases, ours = [], []
    version = tuple(int(part) for part in metadata.version("jax").split(".")[:2])
    for generation, prefix, shape in SLICES:
        slice_ = make(generation, *shape)
        config = slice_.generation.chip_config
        meshes = [mesh for length in (1, 2, 3, 4) for mesh in factorizations(slice_.num_devices, length)]
        cases.append((f"{prefix}:{'x'.join(map(str, shape))}", config, meshes))
        for mesh in meshes:
            for split in (False, True):
                placement = jax_default(slice_, layout(*mesh), split=split, jax=version)
                if placement.description.startswith("row-major"):
                    ours.append(None)
                    continue
                ours.append([[*(*slice_.coords(d), 0)[:3], slice_.core(d)] for d in placement.devices])
    environment = {
        **os.environ,
        "TPU_SKIP_MDS_QUERY": "1",
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    answer = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps(cases),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    theirs = json.loads(answer.stdout)
    questions = [(name, mesh, split) for name, _, meshes in cases for mesh in meshes for split in (False, True)]
    assert len(theirs) == len(ours) == len(questions)
    assert math.prod(SLICES[2][2]) == 16
    different = [q for q, a, b in zip(questions, ours, theirs, strict=True) if a != b]
    assert different == []
