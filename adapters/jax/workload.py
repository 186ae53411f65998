"""A user's own model as a workload: a function, arguments with named dimensions, rules from those names to mesh axes.

The function is written for the whole arrays, as for one device. `Sharding.constrain` tells the partitioner how a value
in it should lie; everything else is propagated by Shardy and the compiler.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax.step import Step, source_digest
from tuner.canonical import digest
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout, Option
from tuner.layouts.space import Choice, Dimension, Space
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice

Names = tuple[str | None, ...]
"""Logical name of each dimension of an array; None for one that is never sharded."""

Rules = Mapping[str, tuple[str, ...]]
"""Mesh axes that shard each logical name, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One array that the function takes: its shape, its dtype and the logical name of each dimension."""

    shape: tuple[int, ...]
    names: Names
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.names):
            raise InvalidValue(f"argument of shape {self.shape} has {len(self.names)} names {self.names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What the function may know of its layout.

    Attributes:
        layout: the layout that is built.
        mesh: the mesh that it is built on.
        rules: from logical names to mesh axes.
        kernels: False if only the facts of the program are wanted, so that kernels may be written out.
    """

    layout: Layout
    mesh: jax.sharding.Mesh
    rules: Rules
    kernels: bool

    def spec(self, *names: str | None) -> PartitionSpec:
        """Returns the partition of an array whose dimensions have these logical names."""
        return PartitionSpec(*(self._axes(name) for name in names))

    def constrain(self, value: jax.Array, *names: str | None) -> jax.Array:
        """Asks that a value lies as its dimensions' logical names say."""
        return jax.lax.with_sharding_constraint(value, NamedSharding(self.mesh, self.spec(*names)))

    def option(self, name: str) -> Option:
        """Returns an option of the layout."""
        return self.layout.option(name)

    def _axes(self, name: str | None) -> tuple[str, ...] | None:
        axes = tuple(axis for axis in self.rules.get(name or "", ()) if self.layout.size(axis) > 1)
        return axes or None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionWorkload:
    """A workload made of a function and rules.

    Attributes:
        model: its name in plans.
        function: called with a `Sharding` and one argument for each of `arguments`.
        arguments: pytrees with `Argument` leaves.
        dimensions: mesh axes, outermost first, with the sizes that each may ever take.
        rules: mesh axes for each logical name. An axis may serve two names, but not within one array.
        options: further choices, which the function reads through `Sharding.option`.
        results: pytree of logical names of what the function returns; None leaves the results to the compiler.
        donate: indices of arguments whose buffers the results may take.
        deployed: axis sizes of what runs today, for baseline A; None for the whole slice on the first axis that may
            take it.
        shape: what a plan of the model depends on beside its name, such as a resolution.
        revision: raise it when the function changes in a way that outdates plans, or what it imports changes.
    """

    model: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    dimensions: tuple[Dimension, ...]
    rules: Rules
    options: tuple[Choice, ...] = ()
    results: Any = None
    donate: tuple[int, ...] = ()
    deployed: Mapping[str, int] | None = None
    shape: str = ""
    revision: str = "1"
    compiler: tuple[Choice, ...] = field(default=())

    def __post_init__(self) -> None:
        axes = {dimension.name for dimension in self.dimensions}
        for name, ruled in self.rules.items():
            unknown = [axis for axis in ruled if axis not in axes]
            if unknown:
                raise InvalidValue(
                    f"rule {name!r} names mesh axes {unknown} that {self.model} does not have; legal: {sorted(axes)}"
                )

    @property
    def name(self) -> str:
        """``model@shape``."""
        return f"{self.model}@{self.shape}" if self.shape else self.model

    @property
    def identity(self) -> Mapping[str, str]:
        """Revision, and a digest over what is declared here."""
        declared = [
            [[path, list(leaf.shape), list(leaf.names), leaf.dtype] for path, leaf in self._leaves()],
            {name: list(axes) for name, axes in self.rules.items()},
            [[dimension.name, list(dimension.sizes)] for dimension in self.dimensions],
            [[choice.name, list(choice.values)] for choice in self.options],
        ]
        return {"revision": self.revision, "declaration": digest(declared)}

    @property
    def source(self) -> str:
        """Digest of the file that defines the function. What it imports is not seen: raise `revision` for that."""
        path = inspect.getsourcefile(inspect.unwrap(self.function))
        return source_digest([Path(path)] if path is not None else [])

    @property
    def space(self) -> Space:
        """The dimensions and options, as they were declared."""
        return Space(dimensions=self.dimensions, options=self.options, compiler=self.compiler)

    def verdict(self, layout: Layout) -> Rejection | None:
        """Returns the first array that a layout cannot shard, or None."""
        for path, argument in self._leaves():
            refusal = self._conflict(path, argument, layout) or self._indivisible(path, argument, layout)
            if refusal is not None:
                return refusal
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        """Returns baseline A: what is declared as deployed, or the whole slice on one axis."""
        axes = dict.fromkeys((dimension.name for dimension in self.dimensions), 1)
        if self.deployed is not None:
            axes |= self.deployed
        else:
            able = [dimension.name for dimension in self.dimensions if slice_.num_devices in dimension.sizes]
            axes |= {able[0]: slice_.num_devices} if able else {}
        layout = Layout.of(axes, self.space.defaults())
        return {"A": layout} if layout.devices == slice_.num_devices else {}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        """Nothing of a function's own is tuned apart."""
        return ()

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        """Builds the step of a layout. Raises InvalidValue for an illegal one."""
        refusal = self.verdict(layout)
        if refusal is not None:
            raise InvalidValue(f"{self.name} cannot be laid out as {layout}: {refusal.detail}")
        sharding = Sharding(layout=layout, mesh=mesh, rules=self.rules, kernels=kernels)

        def abstract(argument: Argument) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(
                argument.shape,
                np.dtype(jax.numpy.dtype(argument.dtype)),
                sharding=NamedSharding(mesh, sharding.spec(*argument.names)),
            )

        def placed(names: Names) -> NamedSharding:
            return NamedSharding(mesh, sharding.spec(*names))

        return Step(
            function=lambda *arguments: self.function(sharding, *arguments),
            arguments=jax.tree.map(abstract, self.arguments, is_leaf=_is_argument),
            out_shardings=None
            if self.results is None
            else jax.tree.map(placed, self.results, is_leaf=lambda node: isinstance(node, tuple)),
            donate=self.donate,
        )

    def _leaves(self) -> Iterator[tuple[str, Argument]]:
        leaves, _ = jax.tree.flatten_with_path(self.arguments, is_leaf=_is_argument)
        for path, leaf in leaves:
            yield jax.tree_util.keystr(path, simple=True, separator="/"), leaf

    def _conflict(self, path: str, argument: Argument, layout: Layout) -> Rejection | None:
        taken: dict[str, str] = {}
        for name in argument.names:
            for axis in self.rules.get(name or "", ()):
                if layout.size(axis) > 1 and taken.setdefault(axis, name or "") != name:
                    return Rejection(
                        stage=Stage.ENUMERATE,
                        reason=RejectReason.CONFLICTING_RULES,
                        detail=(
                            f"{path}: rules {taken[axis]!r} and {name!r} both put mesh axis {axis!r} "
                            f"(size {layout.size(axis)}) on one array; an axis shards one dimension of an array"
                        ),
                        numbers={"size": layout.size(axis)},
                    )
        return None

    def _indivisible(self, path: str, argument: Argument, layout: Layout) -> Rejection | None:
        for dimension, (length, name) in enumerate(zip(argument.shape, argument.names, strict=True)):
            axes = [axis for axis in self.rules.get(name or "", ()) if layout.size(axis) > 1]
            shards = math.prod(layout.size(axis) for axis in axes)
            if length % shards:
                legal = [size for size in range(1, length + 1) if length % size == 0 and size <= layout.devices]
                return Rejection(
                    stage=Stage.ENUMERATE,
                    reason=RejectReason.INDIVISIBLE,
                    detail=(
                        f"{path}: dimension {dimension} ({name}) of length {length} does not divide over mesh "
                        f"axes {'*'.join(axes)} of size {shards}; legal sizes: {', '.join(map(str, legal))}"
                    ),
                    numbers={"dimension": dimension, "length": length, "size": shards},
                )
        return None


def _is_argument(node: object) -> bool:
    return isinstance(node, Argument)
