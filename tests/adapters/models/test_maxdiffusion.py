"""Plans as MaxDiffusion settings. The file that is written is run against stand-ins of its modules."""

import ast
import itertools
import runpy
import shlex
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.models.wan import maxdiffusion
from adapters.models.wan.deployed import AXES
from tests.tuner.plans.samples import V5E_2X4, make_plan
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.plans.plan import Plan
from tuner.plans.workload import WorkloadKey


def wan(axes: dict[str, int], weights: str = "replicated", **changes: Any) -> Plan:
    layout = Layout.of(dict.fromkeys(AXES, 1) | axes, {"weights": weights, "blocks": "1024,2048,512"})
    candidate = Candidate(layout=layout, compiler_options=(("xla_tpu_enable_async_all_to_all", "true"),))
    workload = WorkloadKey(model="wan2.1-t2v-14b", shape="832x480x81", variant=changes.pop("variant", ""))
    return make_plan(workload=workload, candidate=candidate, **changes)


def rules(plan: Plan) -> dict[str, Any]:
    return dict(maxdiffusion.settings(plan).config["logical_axis_rules"])


def test_the_plan_that_usually_wins() -> None:
    made = maxdiffusion.settings(wan({"cfg": 2, "ulysses": 4}))
    assert made.lost == ()
    assert made.flags == ("--xla_tpu_enable_async_all_to_all=true",)
    expected = {
        "ici_data_parallelism": 2,
        "ici_fsdp_parallelism": 1,
        "ici_context_parallelism": 4,
        "ici_tensor_parallelism": 1,
        "attention": "ulysses_custom",
        "ulysses_shards": 4,
        "per_device_batch_size": 0.125,
        "width": 832,
        "height": 480,
        "num_frames": 81,
    }
    assert made.config.items() >= expected.items()
    assert (
        made.config["flash_block_sizes"].items() >= {"block_q": 1024, "block_kv": 2048, "block_kv_compute": 512}.items()
    )
    assert rules(wan({"cfg": 2, "ulysses": 4}))["embed"] is None


@pytest.mark.parametrize(
    ("axes", "attention", "shards", "context"),
    [
        ({"context": 8}, "flash", None, 8),
        ({"ring": 8}, "tokamax_ring", None, 8),
        ({"ring": 2, "ulysses": 4}, "ulysses_ring_custom", 4, 8),
        ({"tensor": 8}, "flash", None, 1),
    ],
)
def test_each_way_to_bring_keys_to_queries(
    axes: dict[str, int], attention: str, shards: int | None, context: int
) -> None:
    made = maxdiffusion.settings(wan(axes))
    assert made.lost == ()
    assert made.config["attention"] == attention
    assert made.config.get("ulysses_shards") == shards
    assert made.config["ici_context_parallelism"] == context


def test_heads_are_split_over_tensor_only_without_uniform_sharding() -> None:
    assert maxdiffusion.settings(wan({"tensor": 8})).config["attention_sharding_uniform"] is False
    assert rules(wan({"tensor": 8}))["activation_self_attn_heads"] == ["tensor"]
    assert maxdiffusion.settings(wan({"context": 8})).config["attention_sharding_uniform"] is True


@pytest.mark.parametrize(
    ("axes", "weights", "embed"),
    [
        ({"cfg": 2, "context": 4}, "context", ["context"]),
        ({"cfg": 2, "context": 4}, "cfg", ["data"]),
        ({"cfg": 2, "context": 4}, "all", ["data", "context"]),
        ({"ring": 2, "ulysses": 4}, "ring+ulysses", ["context"]),
    ],
)
def test_weights_are_kept_over_the_same_axes(axes: dict[str, int], weights: str, embed: list[str]) -> None:
    plan = wan(axes, weights)
    assert rules(plan)["embed"] == embed
    assert maxdiffusion.settings(plan).lost == ()


@pytest.mark.parametrize(
    ("axes", "weights", "lost"),
    [
        ({"context": 2, "ulysses": 4}, "replicated", "instead of being gathered"),
        ({"ulysses": 4, "tensor": 2}, "replicated", "repeats them on each"),
        ({"ring": 2, "ulysses": 4}, "ulysses", "split over all of it"),
    ],
)
def test_what_cannot_be_said_is_said_to_be_lost(axes: dict[str, int], weights: str, lost: str) -> None:
    (sentence,) = maxdiffusion.settings(wan(axes, weights)).lost
    assert lost in sentence
    assert sentence in maxdiffusion.render(wan(axes, weights))


def test_a_distilled_variant_with_two_videos() -> None:
    made = maxdiffusion.settings(wan({"data": 2, "ulysses": 4}, variant="videos=2,no-guidance"))
    assert made.config["per_device_batch_size"] == 0.25
    assert "guidance_scale" in made.lost[0]


def test_guidance_is_outside_of_videos_and_the_exchange_innermost() -> None:
    sizes = {"data": 2, "cfg": 2, "ring": 1, "context": 1, "ulysses": 2, "tensor": 1}
    plan = wan(sizes, placement=Placement(devices=tuple(range(8))))
    layout = plan.candidate.layout
    expected = []
    for cfg, data, ulysses in itertools.product(range(2), range(2), range(2)):
        flat = np.ravel_multi_index((data, cfg, 0, 0, ulysses, 0), layout.shape)
        x, y = V5E_2X4.coords(plan.placement.devices[int(flat)])
        expected.append((x, y, 0, 0))
    assert maxdiffusion.settings(plan).coords == tuple(expected)


def test_other_models_are_refused() -> None:
    with pytest.raises(InvalidValue, match="MaxDiffusion has no wan;"):
        maxdiffusion.settings(make_plan())


class Device:
    def __init__(self, x: int, y: int) -> None:
        self.coords, self.core_on_chip = (x + 4, y + 2, 0), 0


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that is written, with its hook in place of a stand-in's function."""
    package, utilities = types.ModuleType("maxdiffusion"), types.ModuleType("maxdiffusion.max_utils")
    package.max_utils = utilities  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "maxdiffusion", package)
    monkeypatch.setitem(sys.modules, "maxdiffusion.max_utils", utilities)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--given=1")
    (tmp_path / "written.py").write_text(maxdiffusion.render(wan({"cfg": 2, "ulysses": 4})))
    names = runpy.run_path(str(tmp_path / "written.py"))
    assert names["os"].environ["LIBTPU_INIT_ARGS"] == "--given=1 --xla_tpu_enable_async_all_to_all=true"
    return utilities.create_device_mesh  # type: ignore[attr-defined]


def test_the_hook_puts_devices_in_the_plans_order_wherever_the_slice_is(hook: Any) -> None:
    devices = [Device(x, y) for x in range(2) for y in range(4)]
    mesh = hook(None, devices)
    assert mesh.shape == (2, 1, 4, 1)
    plan = wan({"cfg": 2, "ulysses": 4})
    expected = [V5E_2X4.coords(device) for device in plan.placement.devices]
    assert [(d.coords[0] - 4, d.coords[1] - 2) for d in mesh.ravel()] == expected


def test_the_hook_refuses_other_devices(hook: Any) -> None:
    with pytest.raises(ValueError, match="the plan is for v5e-2x4"):
        hook(None, [Device(x, y) for x in range(4) for y in range(2)])


def test_the_written_file_prints_arguments(tmp_path: Path) -> None:
    (tmp_path / "written.py").write_text(maxdiffusion.render(wan({"cfg": 2, "ulysses": 4})))
    done = subprocess.run([sys.executable, tmp_path / "written.py"], capture_output=True, text=True, check=True)
    arguments = dict(part.partition("=")[::2] for part in shlex.split(done.stdout))
    assert arguments["ici_context_parallelism"] == "4"
    assert arguments["attention"] == "ulysses_custom"
    assert "['embed', None]" in arguments["logical_axis_rules"]


def test_names_from_a_database_stay_names() -> None:
    plan = make_plan(workload=WorkloadKey(model="wan2.1-t2v-14b", shape='"""\nraise SystemExit(9)\n"""\\'))
    plan = replace(plan, candidate=wan({"cfg": 2, "ulysses": 4}).candidate)
    parsed = ast.parse(maxdiffusion.render(plan))
    assert not any(isinstance(node, ast.Raise) and "SystemExit" in ast.dump(node) for node in ast.walk(parsed))
    assert "SystemExit" in str(ast.get_docstring(parsed))
