"""From a stored plan to a mesh, shardings and compiler options on live devices."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from adapters.jax.live import place_on
from adapters.jax.topologies import auto_mesh
from tuner.errors import InvalidValue, TunerError
from tuner.plans import files
from tuner.plans.plan import Plan, StoredPlan
from tuner.plans.toolchain import installed_toolchain
from tuner.ports import ArgumentSharding

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A plan on live devices.

    Attributes:
        mesh: the plan's mesh, with every live device at its place and every axis of type Auto.
        arguments: what the plan says of each argument leaf, by path.
        shardings: the sharding of each argument leaf on `mesh`, by path.
        compiler_options: for ``jax.jit(..., compiler_options=...)``; TPU options, which other platforms refuse.
        differences: between the toolchain that made the plan and this one, a sentence each.
    """

    mesh: jax.sharding.Mesh
    arguments: Mapping[str, ArgumentSharding]
    shardings: Mapping[str, NamedSharding]
    compiler_options: Mapping[str, str]
    differences: tuple[str, ...] = ()

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        """Types of the mesh axes, outermost first."""
        return tuple(self.mesh.axis_types)

    def shardings_for(self, tree: Any, prefix: str = "") -> Any:
        """Returns the shardings of a pytree's leaves, in a tree of the same structure.

        Leaves are found by their key path, joined to `prefix` (for example ``params``) with slashes. Raises
        InvalidValue for a leaf that the plan does not have, and for one of another shape than the plan's.
        """

        def of(keys: Any, leaf: Any) -> NamedSharding:
            path = leaf_path(keys, prefix)
            planned = self.arguments.get(path)
            if planned is None:
                nearest = difflib.get_close_matches(path, self.arguments, n=3)
                hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
                raise InvalidValue(f"the plan has no argument {path!r}{hint}")
            shape = getattr(leaf, "shape", None)
            if shape is not None and tuple(shape) != planned.shape:
                raise InvalidValue(f"argument {path!r} has shape {tuple(shape)}, the plan is for {planned.shape}")
            return self.shardings[path]

        return jax.tree_util.tree_map_with_path(of, tree)


class WrongToolchain(TunerError):
    """Another toolchain than this one made the plan; the text says what differs."""


def apply(
    plan: Plan | StoredPlan | Mapping[str, Any] | Path,
    devices: Sequence[Any] | None = None,
    *,
    require_toolchain: bool = False,
) -> Applied:
    """Puts a plan onto live devices.

    A plan that another toolchain made is legal here too, but nobody knows that it is the fastest, or that it fits:
    `Applied.differences` says what differs, and so does the log.

    Args:
        plan: a plan, as a store holds it, its JSON document, or the path of a file that `plans export` wrote.
        devices: in any order; None for ``jax.devices()``. They must be the plan's slice, which may be turned, and
            nothing else.
        require_toolchain: refuses a plan that another toolchain made.

    Raises:
        WrongDevices: the devices are another slice, another generation, or not whole; the text says what they are.
        WrongToolchain: `require_toolchain`, and another one made the plan.
        InvalidValue: the file was changed or is of a newer version, the document is malformed, or shards an argument
            over an axis that its mesh does not have.
    """
    if isinstance(plan, Path):
        plan = files.read(plan)
    elif isinstance(plan, Mapping) and files.DIGEST in plan:
        plan = files.checked(plan)
    elif isinstance(plan, Mapping):
        plan = Plan.from_json(plan)
    elif isinstance(plan, StoredPlan):
        plan = plan.plan
    differences = plan.toolchain.fingerprint.differences(installed_toolchain().fingerprint)
    if differences and require_toolchain:
        raise WrongToolchain(f"another toolchain made the plan: {'; '.join(differences)}")
    if differences:
        _LOG.warning("another toolchain made the plan for %s: %s", plan.workload.name, "; ".join(differences))
    layout = plan.candidate.layout
    live = jax.devices() if devices is None else devices
    mesh = auto_mesh(place_on(live, plan.slice, plan.placement.devices), layout)
    for argument in plan.arguments:
        unknown = {axis for axes in argument.spec for axis in axes} - set(layout.axis_names)
        if unknown:
            raise InvalidValue(
                f"argument {argument.path!r} is sharded over {sorted(unknown)}; the plan's mesh has {layout.axis_names}"
            )
    return Applied(
        mesh=mesh,
        arguments={argument.path: argument for argument in plan.arguments},
        shardings={
            argument.path: NamedSharding(mesh, PartitionSpec(*(axes or None for axes in argument.spec)))
            for argument in plan.arguments
        },
        compiler_options=dict(plan.candidate.compiler_options),
        differences=differences,
    )


def leaf_path(keys: Any, prefix: str = "") -> str:
    """Returns a key path as text, its parts joined with slashes: ``params/blocks/attn1/to_q/kernel``."""
    path = jax.tree_util.keystr(keys, simple=True, separator="/")
    return "/".join(part for part in (prefix, path) if part)
