"""Which single operations are timed on a slice to learn its constants.

Each is an operation of the model: collectives over groups that differ in hops, in size and in how they lie on the
links; permutes that share a link with another or do not; products, passes over memory, and attention. Sizes go from
where latency is all there is to where bandwidth is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.calibration.attention import best_blocks, legal_blocks
from tuner.errors import UnknownName
from tuner.program.program import AttentionKernel, Collective, CollectiveKind, Compute, ComputeKind, Program
from tuner.slices.slice import Slice

KIB, MIB = 1 << 10, 1 << 20

SIZES = (32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)
"""Bytes that a group exchanges: operand of one device, of an all-gather the result."""

LEAST_SHARD = 4 * KIB
"""One register of float32 on TPU; smaller shards would be padded to it."""

SHARED = "shared-link"
CORNER = "corner"
"""Two transfers that meet on a link if the hardware routes along x first, and on none if it does not."""

GROUPED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One operation to time.

    Attributes:
        what: kind of row, as `Observation.what`.
        name: in full.
        node: the operation; logical ids are device indices of the slice.
        shape: of a product (m, k, n).
    """

    what: str
    name: str
    node: Collective | Compute
    shape: tuple[int, ...] = ()

    def program(self, slice_: Slice) -> Program:
        """Returns the operation alone as a program of the slice."""
        return Program(devices=slice_.num_devices, schedule=(self.node,))


def suite(slice_: Slice) -> tuple[Benchmark, ...]:
    """Returns what is timed on a slice. Attention is left out where there is no table of it."""
    return (*_collectives(slice_), *_permutes(slice_), *_products(slice_), *_passes(slice_), *_attention(slice_))


def blocks(slice_: Slice) -> dict[str, Groups]:
    """Returns ways to divide a slice into equal boxes, by name: lines along each axis, squares, and all of it.

    Devices of one chip stay together, except that they are groups of their own too.
    """
    found: dict[str, Groups] = {}
    if slice_.cores > 1:
        chips = range(slice_.num_chips)
        found["cores of a chip"] = tuple(tuple(range(c * slice_.cores, (c + 1) * slice_.cores)) for c in chips)
    extents: list[tuple[int, ...]] = []
    flat = len(slice_.shape)
    for axis, size in enumerate(slice_.shape):
        for length in (part for part in (2, 4, 8, 16) if size % part == 0):
            extents.append(tuple(length if at == axis else 1 for at in range(flat)))
    for first, second in itertools.combinations(range(flat), 2):
        if slice_.shape[first] % 2 == slice_.shape[second] % 2 == 0:
            extents.append(tuple(2 if at in (first, second) else 1 for at in range(flat)))
    extents.append(slice_.shape)
    for extent in extents:
        if math.prod(extent) * slice_.cores > 1:
            found.setdefault("x".join(map(str, extent)), _boxes(slice_, extent))
    return {name: groups for name, groups in found.items() if len(groups[0]) > 1}


def _boxes(slice_: Slice, extent: tuple[int, ...]) -> Groups:
    boxes: dict[tuple[int, ...], list[int]] = {}
    for device in range(slice_.num_devices):
        corner = tuple(at // size for at, size in zip(slice_.coords(device), extent, strict=True))
        boxes.setdefault(corner, []).append(device)
    return tuple(tuple(members) for _, members in sorted(boxes.items()))


def _collectives(slice_: Slice) -> Iterator[Benchmark]:
    for (shape, groups), kind, size in itertools.product(blocks(slice_).items(), GROUPED, (0, *SIZES)):
        members = len(groups[0])
        if 0 < size <= LEAST_SHARD * members:
            continue
        whole = size or LEAST_SHARD * members
        shard = whole // members
        sent, received = {
            CollectiveKind.ALL_GATHER: (shard, whole),
            CollectiveKind.REDUCE_SCATTER: (whole, shard),
        }.get(kind, (whole, whole))
        node = Collective(name=kind.value, kind=kind, operand_bytes=sent, result_bytes=received, groups=groups)
        yield Benchmark(what=kind.value, name=f"{kind.value} of {members} ({shape}), {_text(whole)}", node=node)


def _permutes(slice_: Slice) -> Iterator[Benchmark]:
    for (what, name, pairs), size in itertools.product(_pairs(slice_), (LEAST_SHARD, *SIZES)):
        node = Collective(
            name="permute",
            kind=CollectiveKind.COLLECTIVE_PERMUTE,
            operand_bytes=size,
            result_bytes=size,
            pairs=pairs,
        )
        yield Benchmark(what=what, name=f"{what} {name}, {_text(size)}", node=node)


def _pairs(slice_: Slice) -> Iterator[tuple[str, str, Pairs]]:
    """Yields permutes by kind and name: exchanges of neighbours, single transfers, and two that meet or may meet."""
    alone = CollectiveKind.COLLECTIVE_PERMUTE.value

    def device(axis: int, position: int) -> int:
        return slice_.device(tuple(position if at == axis else 0 for at in range(len(slice_.shape))))

    if len(slice_.shape) > 1 and slice_.shape[0] >= 2 and slice_.shape[1] >= 3:
        rest = (0,) * (len(slice_.shape) - 2)
        start, right, up, far = (slice_.device((*at, *rest)) for at in ((0, 0), (1, 0), (1, 1), (1, 2)))
        yield CORNER, "around x, then y", ((start, far), (right, up))
    for axis, size in enumerate(slice_.shape):
        letter = "xyz"[axis]
        if size % 2 == 0:
            halves = _boxes(slice_, tuple(2 if at == axis else 1 for at in range(len(slice_.shape))))
            across = [(box[at], box[at + len(box) // 2]) for box in halves for at in range(len(box) // 2)]
            yield alone, f"of neighbours along {letter}", tuple(p for a, b in across for p in ((a, b), (b, a)))
        if size >= 4 and slice_.generation.has_links:
            first = (device(axis, 0), device(axis, 2))
            yield alone, f"over two hops along {letter}", (first,)
            yield SHARED, f"of two along {letter}", (first, (device(axis, 1), device(axis, 3)))


def _products(slice_: Slice) -> Iterator[Benchmark]:
    sizes = (1024, 2048, 4096) if slice_.generation.has_links else (256, 512, 1024)
    for m, k in itertools.product(sizes, sizes[1:]):
        node = Compute(name="product", kind=ComputeKind.MATMUL, flops=2.0 * m * k * k, bytes=2 * (2 * m * k + k * k))
        yield Benchmark(what="matmul", name=f"product {m}x{k} by {k}x{k}", node=node, shape=(m, k, k))


def _passes(slice_: Slice) -> Iterator[Benchmark]:
    # On TPU, larger than what the compiler keeps in vector memory.
    sizes = (
        (192 * MIB, 256 * MIB, 384 * MIB, 512 * MIB) if slice_.generation.has_links else (4 * MIB, 8 * MIB, 16 * MIB)
    )
    for size in sizes:
        node = Compute(name="pass", kind=ComputeKind.MEMORY, bytes=2 * size)
        yield Benchmark(what="memory", name=f"pass over {_text(size)}", node=node)


def _attention(slice_: Slice) -> Iterator[Benchmark]:
    heads, length, head_dim = 4, 8192, 128
    generation = slice_.generation_name
    try:
        legal = set(legal_blocks(generation, head_dim))
    except UnknownName:
        return
    fastest = best_blocks(length, length, generation, head_dim=head_dim)
    named = ((512, 512, 512), (512, 1024, 512), (1024, 1024, 1024))
    for chosen in dict.fromkeys((fastest[0].blocks, *(each for each in named if each in legal))):
        kernel = AttentionKernel(
            name="splash_mha_fwd_no_residuals",
            heads=heads,
            q_len=length,
            kv_len=length,
            head_dim=head_dim,
            blocks=chosen,
        )
        node = Compute(name="attention", kind=ComputeKind.KERNEL, kernel=kernel)
        yield Benchmark(what="attention", name=f"attention of {length} tokens in blocks {chosen}", node=node)


def _text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
