"""From a traced step to a `Graph` of the per-device program, without lowering it: half of the time of a screen.

This reads the steps that are one ``shard_map`` over every axis of the mesh and hold only what is named here; for
everything else `read` says that it cannot, and the lowered module is read instead (`reading`), which gives the same
facts.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np

from adapters.jax.screen.building import NOTHING, Builder
from adapters.jax.screen.collectives import named
from adapters.jax.screen.graph import Block, Graph, Op, Product, Repeat, Value, bits, prune
from adapters.jax.screen.meshes import AxisRef, Mesh
from adapters.jax.screen.primitives import (
    AXIS_PARAMETERS,
    COLLECTIVES,
    IDENTITIES,
    INLINED,
    KINDS,
    SPLITS,
    CannotRead,
    axes_of,
    element_type,
    told,
    type_of,
)
from adapters.jax.screen.traffic import uses
from adapters.jax.step import Step


def read(step: Step, traced: Any) -> tuple[Graph, str]:
    """Returns the graph of ``step.jitted().trace(...)`` and a digest of the program. Raises CannotRead.

    Arguments that nothing uses are left out, as JAX leaves them out when it lowers.
    """
    jaxpr = traced.jaxpr
    consts = list(jaxpr.consts)
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if [equation.primitive.name for equation in jaxpr.eqns] != ["shard_map"]:
        raise CannotRead("more than one shard_map")
    (mapped,) = jaxpr.eqns
    sizes = dict(mapped.params["mesh"].shape)
    if set(mapped.params["newly_manual_axes"]) != set(sizes) or list(mapped.outvars) != list(jaxpr.outvars):
        raise CannotRead("a shard_map that is not the whole step")
    leaves = jax.tree.leaves(step.arguments)
    wanted = [leaf.sharding.spec for leaf in leaves]
    results = {axes_of(sharding.spec) for sharding in jax.tree.leaves(step.out_shardings)}
    if results != {axes_of(spec) for spec in mapped.params["out_specs"]}:
        raise CannotRead("results that are sharded otherwise than the shard_map leaves them")
    donated = [flag for index, tree in enumerate(step.arguments) for flag in [index in step.donate] * _count(tree)]
    position = {id(variable): index for index, variable in enumerate(jaxpr.invars)}
    constant = {id(variable): value for variable, value in zip(jaxpr.constvars, consts, strict=True)}
    reader = _Reader(Mesh(axes=tuple(sizes.items())))
    arguments: dict[int, Value] = {}
    inner = mapped.params["jaxpr"]
    inputs = []
    for outer, spec, variable in zip(mapped.invars, mapped.params["in_specs"], inner.invars, strict=True):
        index = position.get(id(outer))
        if index is None:
            if any(spec):
                raise CannotRead("a constant that is sharded")
            held = outer.val if hasattr(outer, "val") else constant[id(outer)]
            inputs.append(reader.constant(held, variable.aval))
            continue
        if axes_of(spec) != axes_of(wanted[index]):
            raise CannotRead("an argument that is sharded otherwise than the shard_map takes it")
        value = arguments.setdefault(index, Value(tuple(variable.aval.shape), element_type(variable.aval.dtype)))
        reader.tell("argument", index, value.shape, value.dtype, axes_of(spec), donated[index])
        inputs.append(value)
    returns = reader.run(inner, inputs)
    reader.tell("returns", [reader.number(value) for value in returns])
    graph = Graph(arguments=(), donated=(), body=reader.builder.blocks[0], returns=tuple(returns))
    prune(graph)
    read_ = uses(graph.body, graph.returns)
    used = [index for index in sorted(arguments) if arguments[index] in read_]
    return (
        Graph(
            arguments=tuple(arguments[index] for index in used),
            donated=tuple(donated[index] for index in used),
            body=graph.body,
            returns=graph.returns,
        ),
        reader.digest,
    )


class _Reader:
    def __init__(self, mesh: Mesh) -> None:
        self.builder = Builder()
        self._mesh = mesh
        self._order = [name for name, _ in mesh.axes]
        self._hash = hashlib.sha256(repr(mesh.devices).encode())
        self._numbers: dict[Value, int] = {}
        self._calls: dict[Hashable, list[Value]] = {}

    @property
    def digest(self) -> str:
        """SHA-256 of everything that was told so far."""
        return self._hash.hexdigest()

    def tell(self, *what: object) -> None:
        """Takes something into the digest."""
        self._hash.update(repr(what).encode())

    def number(self, value: Value) -> int:
        """Returns the number of a value, in the order in which values were first told."""
        return self._numbers.setdefault(value, len(self._numbers))

    def run(self, jaxpr: Any, inputs: list[Value]) -> list[Value]:
        """Reads the equations of a jaxpr and returns its results."""
        environment: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
        for equation in jaxpr.eqns:
            operands = [self._operand(variable, environment) for variable in equation.invars]
            environment.update(zip(equation.outvars, self._read(equation, operands), strict=True))
        return [self._operand(variable, environment) for variable in jaxpr.outvars]

    def constant(self, value: Any, aval: Any) -> Value:
        """Returns a constant; integers keep their number, so that loops can be counted."""
        array = np.asarray(value)
        content = hashlib.sha256(array.tobytes()).digest()

        def number(results: list[Value]) -> None:
            if array.ndim == 0 and array.dtype.kind in "iu":
                results[0].constant = int(array)

        type_ = tuple(aval.shape), element_type(aval.dtype), ()
        return self._add("constant", [], [type_], content, detail=number)[0]

    def _operand(self, variable: Any, environment: dict[Any, Value]) -> Value:
        if hasattr(variable, "val"):
            return self.constant(variable.val, variable.aval)
        return environment[variable]

    def _add(
        self,
        kind: str,
        operands: list[Value],
        types: list[Any],
        what: Hashable,
        detail: Callable[[list[Value]], Any] | None = None,
    ) -> list[Value]:
        results = self.builder.add(kind, operands, types, what, detail=detail)
        fresh = [value for value in results if value not in self._numbers]
        if fresh:
            self.tell(kind, [self.number(value) for value in operands], types, what)
            for value in fresh:
                self.number(value)
        return results

    def _read(self, equation: Any, operands: list[Value]) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        if name in INLINED:
            return self._call(params[INLINED[name]], operands)
        if name in IDENTITIES:
            return operands
        if name == "scan":
            return self._scan(params, operands, equation.outvars)
        if name in COLLECTIVES:
            return self._collective(name, params, operands, equation.outvars)
        types = [type_of(variable.aval) for variable in equation.outvars]
        if name == "axis_index":
            return self._add("partition_id", [], types, ("axis_index", params["axis_name"]))
        if name == "dot_general":
            return self._add("dot_general", operands, types, told(params), detail=_product(params, operands))
        if name in SPLITS:
            cut = told(params)
            parts = [self._add("slice", operands, [type_], (cut, i)) for i, type_ in enumerate(types)]
            if name == "unstack":  # without the dimension that is cut
                return [
                    self._add("reshape", part, [type_], "unstack")[0] for part, type_ in zip(parts, types, strict=True)
                ]
            return [part[0] for part in parts]
        if name not in KINDS:
            raise CannotRead(f"the primitive {name}")
        return self._add(KINDS[name], operands, types, (name, told(params)))

    def _call(self, closed: Any, operands: list[Value]) -> list[Value]:
        jaxpr = getattr(closed, "jaxpr", closed)
        key = (id(jaxpr), id(self.builder.blocks[self.builder.floor]), *map(id, operands))
        if key not in self._calls:
            consts = [
                self.constant(value, variable.aval)
                for variable, value in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True)
            ]
            if consts:
                raise CannotRead("a call with constants of its own")
            self._calls[key] = self.run(jaxpr, operands)
        return self._calls[key]

    def _collective(self, name: str, params: Any, operands: list[Value], outvars: Sequence[Any]) -> list[Value]:
        if params.get("axis_index_groups") is not None:
            raise CannotRead("groups of axis indices")
        axes = next(params[key] for key in AXIS_PARAMETERS if key in params)
        axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
        if not all(isinstance(axis, str) for axis in axes):
            raise CannotRead("a collective over a dimension of a batch")
        groups = self._mesh.groups(tuple(map(AxisRef, axes)))
        kind = COLLECTIVES[name]
        pairs = tuple(
            (group[source], group[target])
            for group in groups
            for source, target in params.get("perm", ())
            if source != target
        )
        found: list[Value] = []
        for operand, variable in zip(operands, outvars, strict=True):

            def detail(results: list[Value], operand: Value = operand) -> Any:
                return (
                    named(kind, [operand], results, self._mesh, groups=() if pairs else groups, pairs=pairs) or NOTHING
                )

            what = (name, pairs or groups, told({k: v for k, v in params.items() if k not in AXIS_PARAMETERS}))
            written = kind.value.replace("-", "_")
            found += self._add(written, [operand], [type_of(variable.aval)], what, detail=detail)
        return found

    def _scan(self, params: Any, operands: list[Value], outvars: Sequence[Any]) -> list[Value]:
        """A loop over slices of what is scanned over, as JAX lowers it: a counter, a compare, slices and updates."""
        body, length = params["jaxpr"], int(params["length"])
        if body.consts or params["unroll"] != 1:
            raise CannotRead("a scan that is unrolled, or has constants of its own")
        consts, inits, scanned = _scan_operands(params, operands)
        fixed, moving = len(consts), len(inits)
        inner = getattr(body, "jaxpr", body)
        unchanged = [
            out is given
            for out, given in zip(inner.outvars[:moving], inner.invars[fixed : fixed + moving], strict=True)
        ]
        start = self._number(0)
        stacks = [self._stack(variable.aval) for variable in outvars[moving:]]
        block = Block(depth=len(self.builder.blocks))
        self.builder.blocks.append(block)
        self.tell("scan", length, params["reverse"], [self.number(value) for value in operands], unchanged)
        counter = self._fresh(start, block.depth)
        carried = [
            init if same else self._fresh(init, block.depth) for init, same in zip(inits, unchanged, strict=True)
        ]
        kept = [self._fresh(stack, block.depth) for stack in stacks]
        condition = self._add("compare", [counter, self._number(length)], [((), "i1", ())], "LT")[0]
        slices = [self._slice(value, counter) for value in scanned]
        results = self.run(inner, [*consts, *carried, *slices])
        yielded, stacked = results[:moving], results[moving:]
        updates = [
            self._add("dynamic_update_slice", [buffer, value, counter], [(buffer.shape, buffer.dtype, ())], "stack")[0]
            for buffer, value in zip(kept, stacked, strict=True)
        ]
        following = self._add("add", [counter, self._number(1)], [((), "i32", ())], "next")[0]
        self.tell("end of scan", [self.number(value) for value in (*yielded, *updates)])
        self.builder.blocks.pop()
        outside = block.depth - 1
        after = [init if same else self._fresh(init, outside) for init, same in zip(inits, unchanged, strict=True)]
        after += [self._fresh(stack, outside) for stack in stacks]
        changing = [index for index, same in enumerate(unchanged) if not same]
        end = self._fresh(start, outside)
        loop = Repeat(
            body=block,
            carried=[counter, *(carried[i] for i in changing), *kept],
            yielded=[following, *(yielded[i] for i in changing), *updates],
            condition=condition,
            trips=length,
        )
        results = [end, *(after[i] for i in changing), *after[moving:]]
        made = Op("while", [start, *(inits[i] for i in changing), *stacks], results, loop)
        for result in results:
            result.producer = made
        self.builder.blocks[-1].ops.append(made)
        return after

    def _number(self, number: int) -> Value:
        return self.constant(np.int32(number), jax.core.ShapedArray((), np.dtype(np.int32)))

    def _stack(self, aval: Any) -> Value:
        zero = self.constant(np.zeros((), aval.dtype), jax.core.ShapedArray((), aval.dtype))
        return self._add("broadcast_in_dim", [zero], [type_of(aval)], "stack")[0]

    def _slice(self, value: Value, counter: Value) -> Value:
        one = self._add("dynamic_slice", [value, counter], [((1, *value.shape[1:]), value.dtype, ())], "scan")[0]
        return self._add("reshape", [one], [(value.shape[1:], value.dtype, ())], "scan")[0]

    def _fresh(self, like: Value, depth: int) -> Value:
        value = Value(like.shape, like.dtype, depth)
        self.number(value)
        return value


def _scan_operands(params: Any, operands: list[Value]) -> list[list[Value]]:
    """Returns what a scan reads unchanged, what it carries and what it scans over."""
    if "num_carry" in params:  # before jax 0.12
        ends = [0, params["num_consts"], params["num_consts"] + params["num_carry"], len(operands)]
        return [operands[start:end] for start, end in itertools.pairwise(ends)]
    return [list(part) for part in params["ft_in"].update(operands).unpack()]


def _product(params: Any, operands: list[Value]) -> Callable[[list[Value]], Product]:
    (contracting, _), (batching, _) = params["dimension_numbers"]
    left = operands[0].shape
    contracted, batch = (math.prod(left[i] for i in axes) for axes in (contracting, batching))
    scale = min(1.0, max(bits(value.dtype) for value in operands) / 16)
    return lambda results: Product(
        flops=2.0 * scale * results[0].elements * contracted, batch=batch, contracted=contracted
    )


def _count(tree: Any) -> int:
    return len(jax.tree.leaves(tree))
