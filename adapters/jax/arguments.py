"""A step's arguments and how a layout shards them, as values that a plan keeps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import NamedSharding

from adapters.jax.step import Step
from tuner.errors import InvalidValue
from tuner.ports import ArgumentSharding

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_shardings(step: Step) -> tuple[ArgumentSharding, ...]:
    """Returns the sharding of every argument leaf, in the order of the step's arguments.

    A leaf's path is the name of the function's parameter (its position, if it has no name) and the key path inside of
    it: ``params/blocks/attn1/to_q/kernel``. Raises InvalidValue for a leaf whose sharding names no mesh axes.
    """
    return tuple(_leaves(step))


def _leaves(step: Step) -> Iterator[ArgumentSharding]:
    parameters = inspect.signature(step.function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
    for position, argument in enumerate(step.arguments):
        name = names[position] if position < len(names) else str(position)
        for keys, leaf in jax.tree_util.tree_leaves_with_path(argument):
            path = "/".join(filter(None, (name, jax.tree_util.keystr(keys, simple=True, separator="/"))))
            if not isinstance(leaf.sharding, NamedSharding):
                raise InvalidValue(
                    f"argument {path!r} has sharding {leaf.sharding}; a NamedSharding on the mesh is legal"
                )
            yield ArgumentSharding(
                path=path,
                shape=tuple(leaf.shape),
                dtype=str(np.dtype(leaf.dtype)),
                spec=_spec(leaf.sharding, len(leaf.shape)),
            )


def _spec(sharding: NamedSharding, dimensions: int) -> tuple[tuple[str, ...], ...]:
    entries = [(entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in sharding.spec]
    return tuple(entries + [()] * (dimensions - len(entries)))
