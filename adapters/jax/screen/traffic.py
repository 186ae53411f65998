"""HBM traffic of what is neither product, kernel nor collective, as a compiler that fuses well would cause it."""

from __future__ import annotations

from collections import Counter

from adapters.jax.screen.graph import Block, Branch, Op, Repeat, Value, inner_blocks

_FUSIBLE = frozenset(
    (
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "convert", "cosine", "divide"),
        *(
            "erf",
            "exponential",
            "exponential_minus_one",
            "floor",
            "imag",
            "is_finite",
            "log",
            "log_plus_one",
            "logistic",
        ),
        *("maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real", "remainder", "rsqrt"),
        *("round_nearest_afz", "round_nearest_even", "select", "shift_left", "shift_right_arithmetic", "sign", "sine"),
        *("shift_right_logical", "sqrt", "square", "subtract", "tan", "tanh", "xor"),
        *("bitcast_convert", "broadcast_in_dim", "concatenate", "pad", "reshape", "reverse", "transpose"),
        *("all_slice", "dynamic_slice", "slice", "constant", "iota", "partition_id", "replica_id"),
    )
)
_VIEWS = frozenset(("reshape", "bitcast_convert"))
_FREE = frozenset(("constant", "iota", "partition_id", "replica_id"))


def uses(block: Block, kept: tuple[Value, ...] = ()) -> dict[Value, list[Op]]:
    """Returns who reads each value, in the whole program; a value that is yielded is read by its loop or branch."""
    found: dict[Value, list[Op]] = {}
    _uses(block, found)
    end = Op("return", list(kept), [])
    for value in kept:
        found.setdefault(value, []).append(end)
    return found


def _uses(block: Block, found: dict[Value, list[Op]]) -> None:
    for op in block.ops:
        read = list(op.operands)
        match op.detail:
            case Repeat() as loop:
                read += [*loop.yielded, loop.condition]
            case Branch() as branch:
                read += [value for yielded in branch.yielded for value in yielded]
        for value in dict.fromkeys(read):
            found.setdefault(value, []).append(op)
        for inner in inner_blocks(op):
            _uses(inner, found)


def fused_bytes(block: Block, readers: dict[Value, list[Op]], inside: frozenset[Value]) -> int:
    """Returns bytes that the elementwise work, reductions and copies of one block move, inner blocks left out.

    A result is written if something that cannot fuse reads it (a product, a kernel, a collective, a loop's next trip);
    the chain of fusible operations before it is computed on the way, and reads each of its inputs once. Values in
    `inside` (of an attention kernel) cost nothing.
    """
    total = 0
    for op in block.ops:
        if op.detail is not None and op.kind != "compare":
            continue
        for result in op.results:
            if result in inside or _is_free(result):
                continue
            if op.kind not in _FUSIBLE or (op.kind not in _VIEWS and _written(result, readers, inside)):
                total += result.bytes + _inputs(op, readers, inside)
    return total


def _is_free(value: Value) -> bool:
    return value.producer is not None and value.producer.kind in _FREE


def _written(value: Value, readers: dict[Value, list[Op]], inside: frozenset[Value]) -> bool:
    who = Counter(
        "fused" if reader.kind in _FUSIBLE or reader.kind == "reduce" else "other"
        for reader in readers.get(value, ())
        if not (reader.results and all(result in inside for result in reader.results))
    )
    return who["other"] > 0


def _inputs(op: Op, readers: dict[Value, list[Op]], inside: frozenset[Value]) -> int:
    """Returns bytes read by the fusion that ends in `op`; a slice reads only what it takes."""
    total, seen = 0, set()
    stack = [(operand, op) for operand in op.operands]
    while stack:
        value, reader = stack.pop()
        if value in seen or value in inside or _is_free(value):
            continue
        seen.add(value)
        producer = value.producer
        fused = producer is not None and producer.kind in _FUSIBLE and not _written(value, readers, inside)
        if fused and producer is not None:
            stack += [(operand, producer) for operand in producer.operands]
        else:
            total += min(value.bytes, *(r.bytes for r in reader.results)) if reader.kind in _SLICES else value.bytes
    return total


_SLICES = frozenset(("slice", "dynamic_slice", "all_slice", "gather"))


def least_bytes(
    block: Block, arguments: tuple[Value, ...], donated: tuple[bool, ...], returns: tuple[Value, ...]
) -> int:
    """Returns HBM bytes that every schedule moves: what is used of each argument, read once, and each result, written.

    Of an argument that is only sliced, the slices count, as often as their loop runs, up to the whole. A result that
    may take a donated buffer over counts nothing: it might be an update of a part of it.
    """
    readers = uses(block)
    times = {id(op): count for op, count in _times(block, 1)}
    read = sum(min(value.bytes, _read(value, readers, times)) for value in dict.fromkeys(arguments))
    spare = Counter((value.shape, value.dtype) for value, gives in zip(arguments, donated, strict=True) if gives)
    written = 0
    for value in dict.fromkeys(returns):
        if spare[value.shape, value.dtype] > 0:
            spare[value.shape, value.dtype] -= 1
        elif value not in arguments:
            written += value.bytes
    return read + written


def alias_bytes(arguments: tuple[Value, ...], donated: tuple[bool, ...], returns: tuple[Value, ...]) -> int:
    """Returns the most bytes that results can share with donated arguments: those of equal shape and type."""
    spare = Counter((value.shape, value.dtype) for value, gives in zip(arguments, donated, strict=True) if gives)
    total = 0
    for value in returns:
        if spare[value.shape, value.dtype] > 0:
            spare[value.shape, value.dtype] -= 1
            total += value.bytes
    return total


def _times(block: Block, count: int) -> list[tuple[Op, int]]:
    found = []
    for op in block.ops:
        found.append((op, count))
        inner_count = count
        if isinstance(op.detail, Repeat):
            inner_count = count * (1 if op.detail.trips is None else op.detail.trips)
        for inner in inner_blocks(op):
            found += _times(inner, inner_count)
    return found


def _read(value: Value, readers: dict[Value, list[Op]], times: dict[int, int]) -> int:
    total = 0
    for op in readers.get(value, ()):
        if op.kind in _SLICES and value is op.operands[0]:
            total += op.results[0].bytes * times[id(op)]
        elif op.kind in _VIEWS:
            total += _read(op.results[0], readers, times)
        else:
            return value.bytes
    return total
