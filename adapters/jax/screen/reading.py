"""From an MLIR module after Shardy to a `Graph` of the per-device program.

Reads shapes at Shardy's own level: a value's global type divided by its sharding is what one device holds, and the
collectives are still Shardy's. Turning the module into per-device shapes with Shardy's ``convert-global-to-local``
would abort the process on row-parallel products on jaxlib 0.10, and raise on some of them on 0.12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlib.mlir import ir

from adapters.jax.screen.building import NOTHING, Builder
from adapters.jax.screen.collectives import collective, is_collective
from adapters.jax.screen.graph import Block, Branch, Graph, Op, Repeat, Value
from adapters.jax.screen.meshes import Mesh, Sharding, shardings
from adapters.jax.screen.products import product
from tuner.errors import InvalidValue

_IDENTITIES = {
    "sdy.sharding_constraint",
    "sdy.propagation_barrier",
    "sdy.reshard",
    "sdy.data_flow_edge",
    "stablehlo.optimization_barrier",
}
_TERMINATORS = {"stablehlo.return", "func.return", "sdy.return"}
_NO_KEY = {"channel_handle", "sdy.sharding", "mhlo.frontend_attributes"}

Environment = dict[Any, Value]


def read(module: Any) -> Graph:
    """Reads a module that Shardy has partitioned (`shardy.partition`)."""
    return _Reader(module).read()


class _Reader:
    def __init__(self, module: Any) -> None:
        self._functions: dict[str, Any] = {}
        self._mesh = Mesh(axes=())
        for op in module.body.operations:
            attributes = op.operation.attributes
            match op.operation.name:
                case "func.func":
                    self._functions[ir.StringAttr(attributes["sym_name"]).value] = op.operation
                case "sdy.mesh" if (mesh := Mesh.read(str(attributes["mesh"]))).axes:
                    if self._mesh.axes not in ((), mesh.axes):
                        raise InvalidValue(f"a program over two meshes, {self._mesh.axes} and {mesh.axes}; legal: one")
                    self._mesh = mesh
        self._types: dict[Any, tuple[tuple[int, ...], str]] = {}
        self._calls: dict[Any, list[Value]] = {}
        self._builder = Builder()

    def read(self) -> Graph:
        main = self._functions["main"]
        attributes = _dictionaries(main, "arg_attrs", len(main.regions[0].blocks[0].arguments))
        arguments = []
        for argument, named in zip(main.regions[0].blocks[0].arguments, attributes, strict=True):
            sharding = shardings(str(named["sdy.sharding"]))[0] if "sdy.sharding" in named else ()
            shape, dtype = self._type(argument.type)
            arguments.append(Value(self._mesh.local_shape(shape, sharding), dtype, sharding=sharding))
        environment = dict(zip(main.regions[0].blocks[0].arguments, arguments, strict=True))
        returns = self._block(main.regions[0].blocks[0], environment)
        return Graph(
            arguments=tuple(arguments),
            donated=tuple("tf.aliasing_output" in named or "jax.buffer_donor" in named for named in attributes),
            body=self._builder.blocks[0],
            returns=tuple(returns),
        )

    def _type(self, type_: Any) -> tuple[tuple[int, ...], str]:
        if type_ not in self._types:
            try:
                ranked = ir.RankedTensorType(type_)
                self._types[type_] = tuple(ranked.shape), str(ranked.element_type)
            except ValueError:  # a token
                self._types[type_] = (), "token"
        return self._types[type_]

    def _block(self, block: Any, environment: Environment) -> list[Value]:
        """Reads the operations of a block and returns the values of its terminator."""
        for view in block.operations:
            op = view.operation
            operands = [environment[operand] for operand in op.operands]
            if op.name in _TERMINATORS:
                return operands
            environment.update(zip(op.results, self._read(op, operands, environment), strict=True))
        return []

    def _read(self, op: Any, operands: list[Value], environment: Environment) -> Sequence[Value]:
        match op.name:
            case "func.call":
                return self._call(op, operands)
            case "sdy.manual_computation" | "sdy.named_computation":
                inner = op.regions[0].blocks[0]
                return self._block(inner, environment | dict(zip(inner.arguments, operands, strict=True)))
            case "stablehlo.while":
                return self._loop(op, operands, environment)
            case "stablehlo.case" | "stablehlo.if":
                return self._branch(op, operands, environment)
            case name if name in _IDENTITIES:
                return operands
            case _:
                return self._plain(op, operands)

    def _call(self, op: Any, operands: list[Value]) -> list[Value]:
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        key = (callee, id(self._builder.blocks[self._builder.floor]), *map(id, operands))
        if key not in self._calls:
            block = self._functions[callee].regions[0].blocks[0]
            self._calls[key] = self._block(block, dict(zip(block.arguments, operands, strict=True)))
        return self._calls[key]

    def _plain(self, op: Any, operands: list[Value]) -> list[Value]:
        kind = op.name.split(".", 1)[1]
        attributes = op.attributes
        side_effect = kind in ("custom_call", "send", "recv", "infeed", "outfeed") and (
            "has_side_effect" not in attributes or bool(ir.BoolAttr(attributes["has_side_effect"]).value)
        )
        what = (
            tuple((name, hash(attributes[name])) for name in _names(attributes) if name not in _NO_KEY),
            tuple(hash(result.type) for result in op.results),
            tuple(
                inner.operation.name for region in op.regions for block in region.blocks for inner in block.operations
            ),
        )
        types = [
            (self._mesh.local_shape(shape, sharding), dtype, sharding)
            for (shape, dtype), sharding in zip(
                (self._type(result.type) for result in op.results), _shardings(op), strict=True
            )
        ]

        def detail(results: list[Value]) -> Any:
            if is_collective(op.name):
                return collective(op, operands, results, self._mesh) or NOTHING
            if kind in ("dot_general", "dot", "convolution"):
                return product(op, operands, results)
            if kind == "constant":
                results[0].constant = _integer(attributes["value"], results[0])
            elif kind == "compare":
                return str(attributes["comparison_direction"]).split()[-1].rstrip(">")
            return None

        return self._builder.add(kind, operands, types, what, detail=detail, side_effect=side_effect)

    def _loop(self, op: Any, inits: list[Value], environment: Environment) -> list[Value]:
        condition, body = (region.blocks[0] for region in op.regions)
        returned = list(list(body.operations)[-1].operation.operands)
        fixed = [argument == value for argument, value in zip(body.arguments, returned, strict=True)]
        block = Block(depth=len(self._builder.blocks))
        self._builder.blocks.append(block)
        carried = [
            init if same else Value(init.shape, init.dtype, block.depth, init.sharding)
            for init, same in zip(inits, fixed, strict=True)
        ]
        verdict = self._block(condition, environment | dict(zip(condition.arguments, carried, strict=True)))[0]
        yielded = self._block(body, environment | dict(zip(body.arguments, carried, strict=True)))
        self._builder.blocks.pop()
        results = [
            init if same else Value(init.shape, init.dtype, block.depth - 1, init.sharding)
            for init, same in zip(inits, fixed, strict=True)
        ]
        moving = [index for index, same in enumerate(fixed) if not same]
        loop = Repeat(
            body=block,
            carried=[carried[i] for i in moving],
            yielded=[yielded[i] for i in moving],
            condition=verdict,
            trips=_trips(verdict, carried, inits, yielded),
        )
        made = Op("while", [inits[i] for i in moving], [results[i] for i in moving], loop)
        for result in made.results:
            result.producer = made
        self._builder.blocks[-1].ops.append(made)
        return results

    def _branch(self, op: Any, operands: list[Value], environment: Environment) -> list[Value]:
        blocks: list[Block] = []
        yielded: list[list[Value]] = []
        floor = self._builder.floor
        for region in op.regions:
            # Nothing moves out of a branch: it might not run.
            block = Block(depth=len(self._builder.blocks))
            self._builder.blocks.append(block)
            self._builder.floor = block.depth
            yielded.append(self._block(region.blocks[0], dict(environment)))
            blocks.append(self._builder.blocks.pop())
        self._builder.floor = floor
        depth = len(self._builder.blocks) - 1
        results = [Value(value.shape, value.dtype, depth, value.sharding) for value in yielded[0]]
        made = Op("case", operands, results, Branch(blocks, yielded))
        for result in results:
            result.producer = made
        self._builder.blocks[-1].ops.append(made)
        return results


def _names(attributes: Any) -> list[str]:
    # Iterating yields names on newer bindings and named attributes on older ones.
    return [name if isinstance(name, str) else name.name for name in attributes]


def _dictionaries(function: Any, name: str, count: int) -> list[Any]:
    if name not in function.attributes:
        return [{}] * count
    return [ir.DictAttr(item) for item in ir.ArrayAttr(function.attributes[name])]


def _shardings(op: Any) -> tuple[Sharding, ...]:
    for name in ("sdy.sharding", "out_sharding"):
        if name in op.attributes:
            found = shardings(str(op.attributes[name]))
            if len(found) == len(op.results):
                return found
    return ((),) * len(op.results)


def _integer(attribute: Any, value: Value) -> int | None:
    if value.shape or not value.dtype.lstrip("u").startswith("i"):
        return None
    return int(next(iter(ir.DenseIntElementsAttr(attribute))))


_PASSES: dict[str, Callable[[int, int], int]] = {
    "LT": lambda distance, step: -(-distance // step),
    "LE": lambda distance, step: distance // step + 1,
    "GT": lambda distance, step: -(-distance // step),
    "GE": lambda distance, step: distance // step + 1,
    "NE": lambda distance, step: distance // step,
}


def _trips(verdict: Value, carried: list[Value], inits: list[Value], yielded: list[Value]) -> int | None:
    """Returns how often a loop runs that counts a carried integer to a constant; None for any other."""
    compare = verdict.producer
    if compare is None or compare.kind != "compare" or compare.detail not in _PASSES:
        return None
    counter, limit = compare.operands
    if counter not in carried or limit.constant is None:
        return None
    index = carried.index(counter)
    move, start = yielded[index].producer, inits[index].constant
    if move is None or move.kind not in ("add", "subtract") or start is None:
        return None
    first, second = move.operands
    if second is counter and move.kind == "add":
        first, second = second, first
    if first is not counter or second.constant is None:
        return None
    step = second.constant if move.kind == "add" else -second.constant
    sign = -1 if compare.detail in ("GT", "GE") or (compare.detail == "NE" and step < 0) else 1
    if step * sign <= 0:
        return None
    return max(0, _PASSES[compare.detail](sign * (limit.constant - start), sign * step))
