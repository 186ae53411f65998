"""Shardy in this process: from a lowered module to shardings on every value and explicit collectives."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir, passmanager

from adapters.jax.screen.meshes import Mesh, axis_refs, shardings

# `enable-full-version` makes every operand's sharding fit its operation, so that local shapes are global ones divided.
# Shardy's conversion to local shapes is left out: see `reading`.
_PARTITION = (
    "sdy-propagation-pipeline,"
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true},"
    "sdy-sharding-constraint-to-reshard,sdy-reshard-to-collectives),"
)
_CLEAN = "canonicalize,cse,symbol-dce"


def partition(module: Any) -> None:
    """Propagates shardings through a module and inserts the collectives that they ask for, in place.

    Raises MLIRError if Shardy refuses the module. Shardy's own checks abort the process.
    """
    passes = _CLEAN if is_manual(module) else _PARTITION + _CLEAN
    with module.context:
        passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)


def is_manual(module: Any) -> bool:
    """Returns whether a module is one ``shard_map`` over every axis of the mesh, on arguments sharded as it wants them.

    Nothing is left to propagate or to insert in such a module.
    """
    main = next(
        op.operation
        for op in module.body.operations
        if op.operation.name == "func.func" and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
    )
    block = main.regions[0].blocks[0]
    first, *rest = (op.operation for op in block.operations)
    if first.name != "sdy.manual_computation" or [op.name for op in rest] != ["func.return"]:
        return False
    if list(first.operands) != list(block.arguments) or list(rest[0].operands) != list(first.results):
        return False
    mesh = next(
        str(op.operation.attributes["mesh"]) for op in module.body.operations if op.operation.name == "sdy.mesh"
    )
    manual = {ref.name for ref in axis_refs(str(first.attributes["manual_axes"]))}
    if manual != {name for name, _ in Mesh.read(mesh).axes} or "res_attrs" not in main.attributes:
        return False
    return all(
        shardings(str(first.attributes[wanted])) == shardings(str(main.attributes[given]))
        for wanted, given in (("in_shardings", "arg_attrs"), ("out_shardings", "res_attrs"))
    )
