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

    Nothing is left to propagate or to insert in such a module. Constants may stand beside, if every device holds them.
    """
    functions = {_symbol(op): op for op in _operations(module.body) if op.name == "func.func"}
    # jax 0.12 writes the same mesh under two names.
    meshes = {Mesh.read(str(op.attributes["mesh"])) for op in _operations(module.body) if op.name == "sdy.mesh"}
    main = functions["main"]
    block = main.regions[0].blocks[0]
    rest = [op for op in _operations(block) if op.name != "stablehlo.constant"]
    if [op.name for op in rest] != ["sdy.manual_computation", "func.return"] or len(meshes) != 1:
        return False
    manual, end = rest
    if list(end.operands) != list(manual.results) or "res_attrs" not in main.attributes:
        return False
    if {ref.name for ref in axis_refs(str(manual.attributes["manual_axes"]))} != {
        name for name, _ in meshes.pop().axes
    }:
        return False
    wanted = shardings(str(manual.attributes["in_shardings"]))
    given = shardings(str(main.attributes["arg_attrs"])) if "arg_attrs" in main.attributes else ()
    arguments = list(block.arguments)
    if len(given) != len(arguments):
        return False
    held = dict(zip(arguments, given, strict=True))
    return all(
        held[operand] == sharding if operand in held else not any(sharding)
        for operand, sharding in zip(manual.operands, wanted, strict=True)
    ) and shardings(str(manual.attributes["out_shardings"])) == shardings(str(main.attributes["res_attrs"]))


def _operations(block: Any) -> list[Any]:
    return [view.operation for view in block.operations]


def _symbol(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)
