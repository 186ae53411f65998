"""What a compiler or a screen made of a candidate: operations, loops, collectives, memory.

Facts only. Seconds come from `tuner.timeline`, which combines a program with a placement, a network and a calibration
record, so that a stored program can be ranked again under a better model without a compile. All figures are for one
device and for one execution of the operation; a `Loop` multiplies by its trip count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tuner.errors import InvalidValue


class ComputeKind(StrEnum):
    """What bounds an operation. Values are stored: only add, never remove."""

    MATMUL = "matmul"  # runs on the matrix unit; the compiler's cycle estimate is good
    MEMORY = "memory"  # elementwise, reductions, norms: bytes over bandwidth
    COPY = "copy"  # layout changes: copy, transpose, pad, slice, concatenate, reshape
    KERNEL = "kernel"  # a Pallas kernel; the compiler gives no cycles
    SCALAR = "scalar"  # bookkeeping without cost worth modelling


class CollectiveKind(StrEnum):
    """Kinds of collective, as compiled. Values are stored: only add, never remove."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    COLLECTIVE_PERMUTE = "collective-permute"
    DCN = "dcn"  # send and receive between slices


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """Sizes of one call of an attention kernel, as executed (padding included).

    `heads` counts the batch too: a batch of 2 over 3 heads is 6. `blocks` are the kernel's (query, key/value, key/value
    compute) block lengths. `masked` says that a function of the indices hides keys, which costs every step; whether
    segment ids do, and whether the log-sum-exp is written, stands in the name that splash attention gives itself.
    """

    name: str
    heads: int
    q_len: int
    kv_len: int
    head_dim: int
    blocks: tuple[int, int, int]
    masked: bool = False

    @property
    def flops(self) -> float:
        """Floating-point operations of the two matrix products, padding included."""
        return 4.0 * self.heads * self.q_len * self.kv_len * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One or several merged operations without communication.

    Attributes:
        flops: floating-point operations of matrix products (0 if the source does not say).
        bytes: bytes read from and written to HBM.
        vmem_bytes: bytes read from and written to on-chip vector memory, where the compiler keeps what fits.
        cycles: the compiler's estimate; None where it gives none.
        kernel: sizes, if the operation is an attention kernel.
    """

    name: str
    kind: ComputeKind
    flops: float = 0.0
    bytes: int = 0
    vmem_bytes: int = 0
    cycles: int | None = None
    kernel: AttentionKernel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective over groups of logical device ids (flattened mesh indices, not device ids).

    Attributes:
        operand_bytes: bytes of the operand on one device, in the layout that is sent (tile padding included if known).
        result_bytes: bytes of the result on one device.
        groups: the groups that run it at the same time; empty for a permute.
        pairs: (source, target) of a permute; empty otherwise.
        asynchronous: True if the schedule starts and finishes it apart, so that compute may run between.
        strategy: what the compiler says of its algorithm, for example ``UniDirection1DRing``; empty if it does not.
        written: the opcode in the source program if the compiler turned it into another; empty otherwise.
    """

    name: str
    kind: CollectiveKind
    operand_bytes: int
    result_bytes: int
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    asynchronous: bool = False
    strategy: str = ""
    written: str = ""

    def __post_init__(self) -> None:
        if self.kind is CollectiveKind.COLLECTIVE_PERMUTE:
            if not self.pairs:
                raise InvalidValue(f"collective-permute {self.name!r} has no source-target pairs")
        elif self.kind is not CollectiveKind.DCN and not self.groups:
            raise InvalidValue(f"{self.kind} {self.name!r} has no replica groups")

    @property
    def group_size(self) -> int:
        """Devices in the largest group (2 for a permute)."""
        return max((len(group) for group in self.groups), default=2)

    @property
    def received_bytes(self) -> float:
        """Bytes that one device receives under ring accounting, the measure that systems are compared by.

        All-gather and all-to-all receive (g-1)/g of the result, reduce-scatter (g-1)/g of the operand, all-reduce twice
        that, a permute its whole operand (the mean over devices if some receive nothing).
        """
        share = (self.group_size - 1) / self.group_size
        match self.kind:
            case CollectiveKind.ALL_REDUCE:
                return 2 * share * self.operand_bytes
            case CollectiveKind.REDUCE_SCATTER:
                return share * self.operand_bytes
            case CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
                return share * self.result_bytes
            case _:
                return float(self.operand_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """An asynchronous collective begins here in the schedule."""

    collective: Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The asynchronous collective of that name must have ended here."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A while loop with a known trip count."""

    name: str
    trips: int
    body: tuple[Node, ...]

    def __post_init__(self) -> None:
        if self.trips < 0:
            raise InvalidValue(f"loop {self.name!r} has {self.trips} trips; 0 or more are legal")


Node = Compute | Collective | Start | Done | Loop
"""An entry of a schedule. A bare `Collective` is synchronous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes in one device's HBM. `alias_bytes` are counted in both arguments and outputs and held once."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int = 0
    code_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes that must be resident at the peak."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes - self.alias_bytes + self.code_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A schedule for one device of `devices`, and its memory (None means unknown, never 0)."""

    devices: int
    schedule: tuple[Node, ...]
    memory: Memory | None = None

    @property
    def received_bytes(self) -> float:
        """Bytes that one device receives in all, under ring accounting."""
        return sum(times * node.received_bytes for node, times in self.walk() if isinstance(node, Collective))

    def walk(self) -> Iterator[tuple[Compute | Collective, int]]:
        """Yields every operation and collective with the number of times that it runs; a `Start` counts once."""
        yield from _walk(self.schedule, 1)


def _walk(nodes: tuple[Node, ...], times: int) -> Iterator[tuple[Compute | Collective, int]]:
    for node in nodes:
        match node:
            case Loop():
                yield from _walk(node.body, times * node.trips)
            case Start():
                yield node.collective, times
            case Compute() | Collective():
                yield node, times
            case Done():
                pass
