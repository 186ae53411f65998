"""What JAX's primitives are called in StableHLO, and what of them tells one operation from another."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.jax.screen.building import Type
from tuner.program.program import CollectiveKind

INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
IDENTITIES = frozenset(("copy", "copy_p", "optimization_barrier", "stop_gradient"))
KINDS = {
    "abs": "abs",
    "add": "add",
    "add_any": "add",
    "and": "and",
    "broadcast_in_dim": "broadcast_in_dim",
    "ceil": "ceil",
    "clamp": "clamp",
    "concatenate": "concatenate",
    "convert_element_type": "convert",
    "cos": "cosine",
    "div": "divide",
    "dynamic_slice": "dynamic_slice",
    "dynamic_update_slice": "dynamic_update_slice",
    "eq": "compare",
    "erf": "erf",
    "erfc": "erfc",
    "exp": "exponential",
    "expand_dims": "reshape",
    "expm1": "exponential_minus_one",
    "floor": "floor",
    "gather": "gather",
    "ge": "compare",
    "gt": "compare",
    "integer_pow": "multiply",
    "iota": "iota",
    "is_finite": "is_finite",
    "le": "compare",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "lt": "compare",
    "max": "maximum",
    "min": "minimum",
    "mul": "multiply",
    "ne": "compare",
    "neg": "negate",
    "not": "not",
    "or": "or",
    "pad": "pad",
    "pow": "power",
    "reduce_and": "reduce",
    "reduce_max": "reduce",
    "reduce_min": "reduce",
    "reduce_or": "reduce",
    "reduce_sum": "reduce",
    "rem": "remainder",
    "reshape": "reshape",
    "rev": "reverse",
    "rsqrt": "rsqrt",
    "select_n": "select",
    "sign": "sign",
    "sin": "sine",
    "slice": "slice",
    "split": "slice",
    "sqrt": "sqrt",
    "square": "multiply",
    "squeeze": "reshape",
    "sub": "subtract",
    "tanh": "tanh",
    "tile": "broadcast_in_dim",
    "transpose": "transpose",
    "unstack": "slice",
    "xor": "xor",
}
"""StableHLO's names of JAX's primitives."""

COLLECTIVES = {
    "all_gather": CollectiveKind.ALL_GATHER,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "pmax": CollectiveKind.ALL_REDUCE,
    "pmin": CollectiveKind.ALL_REDUCE,
    "ppermute": CollectiveKind.COLLECTIVE_PERMUTE,
    "psum": CollectiveKind.ALL_REDUCE,
    "psum_invariant": CollectiveKind.ALL_REDUCE,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
}
"""Primitives that move data between devices."""

AXIS_PARAMETERS = ("axes", "axis_name")
_UNTOLD = frozenset(("jaxpr", "sharding", "out_sharding", "name", "weak_type"))
SPLITS = frozenset(("split", "unstack"))
"""Primitives that are an operation for each of their results."""


class CannotRead(Exception):
    """The step holds something that is read from its lowered form only."""


def told(params: Any) -> str:
    """Returns the parameters of an equation that tell it from others, as text."""
    return repr(sorted((name, value) for name, value in params.items() if name not in _UNTOLD))


def type_of(aval: Any) -> Type:
    """Returns the type of a value of a jaxpr, which is local inside of a `shard_map`."""
    return tuple(aval.shape), element_type(aval.dtype), ()


def element_type(dtype: Any) -> str:
    """Returns MLIR's name of an element type."""
    name = np.dtype(dtype).name
    if name == "bool":
        return "i1"
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "ui"), ("int", "i")):
        if name.startswith(long) and name[len(long) :].isdigit():
            return f"{short}{name[len(long) :]}"
    raise CannotRead(f"the element type {name}")


def axes_of(spec: Any) -> tuple[tuple[str, ...], ...]:
    """Returns the mesh axes of each dimension, without trailing dimensions that are not sharded."""
    axes = [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec]
    while axes and not axes[-1]:
        axes.pop()
    return tuple(axes)
