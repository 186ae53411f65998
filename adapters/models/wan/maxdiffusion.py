"""A plan as MaxDiffusion settings: the nearest thing that AI-Hypercomputer/maxdiffusion can run, and what it loses.

MaxDiffusion's mesh is (data, fsdp, context, tensor) and its guidance is a batch of two, so `data` takes our data and
guidance axes and `context` our token axes, of which the one that exchanges heads is the innermost (``ulysses_shards``).
It has no setting for the order of devices: a hook in place of ``max_utils.create_device_mesh`` puts them in the plan's.
Names of settings are those of its Wan configurations of August 2026. Needs neither JAX nor MaxDiffusion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapters.models.wan.config import PRESETS
from adapters.models.wan.deployed import AXES
from tuner.errors import InvalidValue
from tuner.plans.plan import Plan

MESH = ("data", "fsdp", "context", "tensor")
_BATCH, _TOKENS = ("cfg", "data"), ("ring", "context", "ulysses")
_ALL = ("data", "cfg", *_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What MaxDiffusion is told.

    Attributes:
        config: its settings by name; values are what its YAML files hold.
        flags: for ``LIBTPU_INIT_ARGS``.
        coords: (x, y, z, core) of the device at each position of MaxDiffusion's mesh, flattened with the last axis
            fastest, relative to the slice's corner.
        lost: what MaxDiffusion does otherwise than the plan, a sentence each.
    """

    config: Mapping[str, Any]
    flags: tuple[str, ...]
    coords: tuple[tuple[int, int, int, int], ...]
    lost: tuple[str, ...]


def settings(plan: Plan) -> Settings:
    """Returns the settings that come nearest to a plan. Raises InvalidValue if the plan is for no Wan model."""
    layout = plan.candidate.layout
    if plan.workload.model not in PRESETS or set(layout.axis_names) - set(AXES):
        raise InvalidValue(f"MaxDiffusion has no {plan.workload.model}; its Wan models are {', '.join(PRESETS)}")
    size = layout.size
    lost: list[str] = []
    sizes = {
        "data": size("cfg") * size("data"),
        "fsdp": 1,
        "context": math.prod(map(size, _TOKENS)),
        "tensor": size("tensor"),
    }
    variant = dict(part.partition("=")[::2] for part in plan.workload.variant.split(",") if part)
    videos = int(variant.get("videos", "1"))
    config: dict[str, Any] = {f"ici_{name}_parallelism": count for name, count in sizes.items()}
    config |= {f"dcn_{name}_parallelism": 1 for name in MESH}
    config |= _attention(plan, lost)
    config |= {
        "logical_axis_rules": _rules(plan, lost),
        "flash_block_sizes": _blocks(str(layout.option("blocks", ""))),
        "flash_min_seq_length": 0,
        "per_device_batch_size": videos / layout.devices,
        "scan_layers": True,
        **_shape(plan.workload.shape),
    }
    if "no-guidance" in variant:
        lost.append("the plan runs without guidance: set guidance_scale to 1 and check that one pass is run")
    flags = tuple(f"--{name}={value}" for name, value in plan.candidate.compiler_options)
    return Settings(config=config, flags=flags, coords=_coords(plan), lost=tuple(lost))


def _attention(plan: Plan, lost: list[str]) -> dict[str, Any]:
    """Which attention brings keys to queries, and over how many shards heads are exchanged."""
    size = plan.candidate.layout.size
    ring, gathered, heads, tensor = (size(name) for name in ("ring", "context", "ulysses", "tensor"))
    if gathered > 1 and heads > 1:
        lost.append(
            f"keys are gathered over {gathered} and heads exchanged over {heads}; MaxDiffusion combines exchanges with "
            "rings only, so keys pass around a ring instead of being gathered"
        )
        ring = gathered
    if tensor > 1 and (ring > 1 or heads > 1):
        lost.append(f"heads are split over tensor={tensor}; with this attention MaxDiffusion repeats them on each")
    if ring > 1 and heads > 1:
        return {"attention": "ulysses_ring_custom", "ulysses_shards": heads}
    if heads > 1:
        return {"attention": "ulysses_custom", "ulysses_shards": heads}
    if ring > 1:
        return {"attention": "tokamax_ring"}
    # Its uniform sharding never splits heads, so that it repeats attention on every shard of `tensor`.
    return {"attention": "flash", "attention_sharding_uniform": tensor == 1}


def _rules(plan: Plan, lost: list[str]) -> list[list[Any]]:
    batch, tensor = ["data", "fsdp"], "tensor"
    rules: list[list[Any]] = [
        ["batch", batch],
        ["activation_batch", batch],
        ["activation_self_attn_heads", [tensor]],
        ["activation_self_attn_q_length", ["context"]],
        ["activation_self_attn_kv_length", None],
        ["activation_cross_attn_q_length", ["context"]],
        ["activation_length", "context"],
        ["activation_heads", tensor],
        ["mlp", tensor],
        ["embed", _kept(plan, lost)],
        ["heads", tensor],
        ["norm", tensor],
        ["conv_batch", ["data", "context", "fsdp"]],
        ["out_channels", tensor],
        ["conv_out", "context"],
    ]
    if plan.candidate.layout.size("tensor") == 1 or plan.candidate.layout.size("ulysses") > 1:
        # The rule that MaxDiffusion's own attention settings put first is the one that the plan means.
        rules = [rule for rule in rules if not rule[0].startswith("activation_self_attn")]
    return rules


def _kept(plan: Plan, lost: list[str]) -> list[str] | None:
    """Mesh axes that weights are kept split over, None for whole weights on every device."""
    layout = plan.candidate.layout
    option = str(layout.option("weights", "replicated"))
    if option == "replicated":
        return None
    split = {name for name in _ALL if layout.size(name) > 1}
    named = split if option == "all" else set(option.split("+")) & split
    axes = []
    for axis, ours in (("data", set(_BATCH) & split), ("context", set(_TOKENS) & split)):
        if named & ours:
            axes.append(axis)
        if named & ours and ours - named:
            lost.append(
                f"weights are kept split over {'+'.join(sorted(named & ours))}; MaxDiffusion's {axis} axis is "
                f"{'x'.join(sorted(ours))} in one, so they are split over all of it and gathered over more"
            )
    return axes or None


def _blocks(text: str) -> dict[str, int]:
    try:
        query, keys, compute = (int(part) for part in text.split(","))
    except ValueError:
        return {}
    return {
        "block_q": query,
        "block_kv": keys,
        "block_kv_compute": compute,
        "block_q_dkv": query,
        "block_kv_dkv": keys,
        "block_kv_dkv_compute": compute,
    }


def _shape(text: str) -> dict[str, int]:
    sizes = text.split("x")
    return dict(zip(("width", "height", "num_frames"), map(int, sizes), strict=True)) if len(sizes) == 3 else {}


def _coords(plan: Plan) -> tuple[tuple[int, int, int, int], ...]:
    """Devices in MaxDiffusion's order: its batch is both guidance halves of all videos, so guidance is outermost."""
    layout, slice_ = plan.candidate.layout, plan.slice
    order = (*_BATCH, *_TOKENS, "tensor")
    found = []
    for position in itertools.product(*(range(layout.size(name)) for name in order)):
        at = dict(zip(order, position, strict=True))
        flat = 0
        for name, count in layout.axes:
            flat = flat * count + at[name]
        device = plan.placement.devices[flat]
        x, y, z = (*slice_.coords(device), 0)[:3]
        found.append((x, y, z, slice_.core(device)))
    return tuple(found)


def render(plan: Plan) -> str:
    """Returns a Python file: what to tell MaxDiffusion, the hook, and, in its head, what is lost."""
    made = settings(plan)
    lost = "".join(f"\n  - {_inert(sentence)}" for sentence in made.lost) or "\n  nothing"
    config = "".join(f"    {name!r}: {value!r},\n" for name, value in made.config.items())
    coords = "".join(f"    {coords!r},\n" for coords in made.coords)
    grid = tuple(made.config[f"ici_{name}_parallelism"] for name in MESH)
    return _FILE.format(
        # Names come from the database, and this becomes code: they stay inside of the docstring.
        name=_inert(plan.workload.name),
        slice=plan.slice.name,
        evidence=f"{plan.step_s * 1e3:.1f} ms, {plan.evidence}, in the layout of the plan itself",
        toolchain=_inert(str(plan.toolchain)),
        lost=lost,
        config=config,
        flags=" ".join(made.flags),
        grid=grid,
        coords=coords,
        kind=plan.slice.generation_name,
    )


def _inert(text: str) -> str:
    """Returns a text as it may stand in a docstring: without double quotes, backslashes and lines of its own."""
    return "".join(char if char.isprintable() and char not in '"\\' else "?" for char in text)


_FILE = '''"""MaxDiffusion settings of a meshwright plan: {name} on {slice}.

Step: {evidence}. Made with {toolchain}.

Before anything of MaxDiffusion is imported, import this file: it sets the flags and replaces the function that makes
the mesh. The settings are arguments of MaxDiffusion's programs, which running this file prints:

    python -c "import THIS, runpy; runpy.run_module('maxdiffusion.generate_wan', run_name='__main__')" \\\\
        base_wan_14b.yml $(python THIS.py)

What MaxDiffusion does otherwise than the plan:{lost}
"""

import os

CONFIG = {{
{config}}}
FLAGS = {flags!r}
MESH = {grid!r}  # data, fsdp, context, tensor
COORDS = (  # x, y, z, core of the device at each position of the mesh, from the corner of the slice
{coords})

os.environ["LIBTPU_INIT_ARGS"] = " ".join(filter(None, (os.environ.get("LIBTPU_INIT_ARGS"), FLAGS)))


def create_device_mesh(config, devices=None, logging=True):
    """Puts the devices in the plan's order; takes the place of maxdiffusion.max_utils.create_device_mesh."""
    import jax
    import numpy as np

    devices = list(jax.devices() if devices is None else devices)
    places = [(*d.coords, 0, 0)[:3] for d in devices]
    corner = np.min(places, axis=0)
    cores = [getattr(d, "core_on_chip", 0) or 0 for d in devices]
    found = {{(*map(int, p - corner), core): d for p, core, d in zip(np.array(places), cores, devices)}}
    if set(found) != set(COORDS):
        raise ValueError(f"the plan is for {slice}, the devices are {{sorted(found)}}")
    mesh = np.empty(len(COORDS), dtype=object)
    mesh[:] = [found[place] for place in COORDS]
    return mesh.reshape(MESH)


if __name__ == "__main__":
    import shlex

    print(" ".join(shlex.quote(f"{{name}}={{value}}") for name, value in CONFIG.items()))
else:
    from maxdiffusion import max_utils

    max_utils.create_device_mesh = create_device_mesh
'''
