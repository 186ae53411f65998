"""Collectives, as a program writes them in ``shard_map`` and as Shardy inserts them, as the tuner's values."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jaxlib.mlir import ir

from adapters.jax.screen.graph import Value
from adapters.jax.screen.meshes import AxisRef, Groups, Mesh, axis_refs
from tuner.program.program import Collective, CollectiveKind

_KINDS = {
    "stablehlo.all_reduce": CollectiveKind.ALL_REDUCE,
    "stablehlo.all_gather": CollectiveKind.ALL_GATHER,
    "stablehlo.reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "stablehlo.all_to_all": CollectiveKind.ALL_TO_ALL,
    "stablehlo.collective_permute": CollectiveKind.COLLECTIVE_PERMUTE,
    "stablehlo.collective_broadcast": CollectiveKind.ALL_GATHER,
    "sdy.all_reduce": CollectiveKind.ALL_REDUCE,
    "sdy.all_gather": CollectiveKind.ALL_GATHER,
    "sdy.reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "sdy.all_to_all": CollectiveKind.ALL_TO_ALL,
    "sdy.collective_permute": CollectiveKind.COLLECTIVE_PERMUTE,
}
_AXES = {
    "sdy.all_reduce": "reduction_axes",
    "sdy.all_gather": "gathering_axes",
    "sdy.reduce_scatter": "reduce_scatter_axes",
    "sdy.all_to_all": "params",
}


def is_collective(name: str) -> bool:
    """Returns whether an MLIR operation of that name moves data between devices."""
    return name in _KINDS


def collective(op: Any, operands: list[Value], results: list[Value], mesh: Mesh) -> Collective | None:
    """Returns the collective of an operation, named by its kind and mesh axes; None if its groups have one device."""
    kind = _KINDS[op.name]
    if kind is CollectiveKind.COLLECTIVE_PERMUTE:
        return named(kind, operands, results, mesh, pairs=_pairs(op, operands, results, mesh))
    return named(kind, operands, results, mesh, groups=_groups(op, mesh))


def named(
    kind: CollectiveKind,
    operands: list[Value],
    results: list[Value],
    mesh: Mesh,
    *,
    groups: Groups = (),
    pairs: tuple[tuple[int, int], ...] = (),
) -> Collective | None:
    """Returns a collective over groups, or of pairs if it is a permute, named by its kind and mesh axes; None if
    nothing moves."""
    if kind is CollectiveKind.COLLECTIVE_PERMUTE:
        found = {axis for pair in pairs for axis in mesh.axes_of((pair,))}
        axes = tuple(sorted(found, key=[name for name, _ in mesh.axes].index))
    else:
        axes = mesh.axes_of(groups) if max(map(len, groups)) > 1 else ()
    if not axes:
        return None
    return Collective(
        name=_name(kind, axes),
        kind=kind,
        operand_bytes=sum(value.bytes for value in operands),
        result_bytes=sum(value.bytes for value in results),
        groups=groups,
        pairs=pairs,
    )


def _name(kind: CollectiveKind, axes: tuple[str, ...]) -> str:
    return f"{kind} over {'+'.join(axes)}"


def _pairs(op: Any, operands: list[Value], results: list[Value], mesh: Mesh) -> tuple[tuple[int, int], ...]:
    if op.name.startswith("sdy."):
        return mesh.permutation(operands[0].sharding, results[0].sharding)
    numbers = list(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"]))
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple((source, target) for source, target in pairs if source != target)


def _groups(op: Any, mesh: Mesh) -> Groups:
    if op.name in _AXES:
        return mesh.groups(axis_refs(str(op.attributes[_AXES[op.name]])))
    attribute = op.attributes["replica_groups"]
    text = str(attribute)
    if "mesh_axes" in text:
        return mesh.groups(_mesh_axes(text))
    numbers = list(ir.DenseIntElementsAttr(attribute))
    size = ir.RankedTensorType(attribute.type).shape[1]
    rows = (numbers[i : i + size] for i in range(0, len(numbers), size or 1))
    # A group that is shorter than the longest is filled up with -1; none at all means every device.
    groups = tuple(tuple(member for member in row if member >= 0) for row in rows)
    return groups or (tuple(range(mesh.devices)),)


@cache
def _mesh_axes(text: str) -> tuple[AxisRef, ...]:
    """Reads ``#stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = "x", ...>]>``."""
    refs = []
    for part in text.split("axis_ref<")[1:]:
        name = re.search(r'name = "([^"]+)"', part)
        pre, size = re.search(r"pre_size = (\d+)", part), re.search(r"[ <,]size = (\d+)", part)
        if name is None:
            raise ValueError(f"an axis without a name in {text!r}")
        refs.append(AxisRef(name[1], int(pre[1]), int(size[1])) if pre and size else AxisRef(name[1]))
    return tuple(refs)
