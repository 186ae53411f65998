"""A guess of the step time of a screened candidate, which orders the queue and decides nothing else.

Meant to be close to what the timeline will predict after a compile, on a good placement: products at what the compiler
reaches, attention from the kernel's table, the rest by its traffic, collectives on compact blocks of chips.
"""

from __future__ import annotations

import math

from tuner.calibration.attention import attention_seconds, best_blocks
from tuner.calibration.calibration import Calibration
from tuner.errors import TunerError
from tuner.ports import Screened
from tuner.program.program import AttentionKernel, Collective, CollectiveKind, Compute, ComputeKind, Loop, Node
from tuner.slices.generations import Generation
from tuner.slices.slice import Slice

# The compiler's own cycles for the products of a Wan layer are 1.12 times the roofline (libtpu 0.0.50.1, v5e).
_MATMUL_EFFICIENCY = 0.85
# For generations without a table of the kernel.
_KERNEL_EFFICIENCY = 0.5
_LANES = 128


def estimate(screened: Screened, slice_: Slice, calibration: Calibration) -> float:
    """Returns the estimated step time in seconds."""
    return _Clock(slice_, calibration).seconds(screened.program.schedule)


class _Clock:
    def __init__(self, slice_: Slice, calibration: Calibration) -> None:
        self._slice = slice_
        self._calibration = calibration

    def seconds(self, nodes: tuple[Node, ...]) -> float:
        """Of a schedule: compute, then collectives; permutes run behind the compute of the same loop trip."""
        compute = exposed = hidden = inner = 0.0
        for node in nodes:
            match node:
                case Loop():
                    inner += node.trips * self.seconds(node.body)
                case Compute():
                    compute += self._compute(node)
                case Collective() if node.kind is CollectiveKind.COLLECTIVE_PERMUTE:
                    hidden += collective_s(node, self._slice, self._calibration)
                case Collective():
                    exposed += collective_s(node, self._slice, self._calibration)
        return inner + exposed + max(compute, hidden)

    def _compute(self, node: Compute) -> float:
        generation = self._slice.generation
        memory_s = node.bytes / (generation.hbm_bytes_per_s * self._calibration.hbm_efficiency)
        if node.kernel is not None:
            return max(_attention_s(node.kernel, generation), memory_s)
        if node.kind is ComputeKind.MATMUL:
            return max(node.flops / (generation.peak_flops * _MATMUL_EFFICIENCY), memory_s)
        return max(node.flops / (generation.peak_flops * _KERNEL_EFFICIENCY), memory_s)


def _attention_s(kernel: AttentionKernel, generation: Generation) -> float:
    try:
        blocks = kernel.blocks
        if not all(blocks):
            blocks = best_blocks(kernel.q_len, kernel.kv_len, generation.name, head_dim=kernel.head_dim)[0].blocks
        return attention_seconds(_with_blocks(kernel, blocks), generation)
    except TunerError:
        return kernel.flops / (generation.peak_flops * _KERNEL_EFFICIENCY)


def _with_blocks(kernel: AttentionKernel, blocks: tuple[int, int, int]) -> AttentionKernel:
    """Returns the kernel with blocks no longer than its lengths: a short sequence is one block."""
    query, key, compute = blocks
    longest = math.ceil(kernel.kv_len / _LANES) * _LANES
    if longest < key:
        key = longest
        compute = compute if key % compute == 0 else _LANES if key % _LANES else key
    query = min(query, math.ceil(kernel.q_len / _LANES) * _LANES)
    return AttentionKernel(
        name=kernel.name,
        heads=kernel.heads,
        q_len=kernel.q_len,
        kv_len=kernel.kv_len,
        head_dim=kernel.head_dim,
        blocks=(query, key, compute),
    )


def collective_s(collective: Collective, slice_: Slice, calibration: Calibration) -> float:
    """Returns the time of a collective whose groups are compact blocks of chips, closed to rings where possible.

    With S the operand (of an all-gather the result) and B the rate of a link, on a ring both ways: all-reduce
    (g-1)/g S/B, reduce-scatter and all-gather half of it; all-to-all over the bisection of an a x b block,
    max(a, b)/4 S/B. Several groups at once are taken not to share links.
    """
    if collective.kind is CollectiveKind.DCN:
        return max(calibration.dcn_launch_s, collective.operand_bytes / calibration.dcn_bytes_per_s)
    rate = calibration.sustained_link_bytes_per_s
    size = collective.group_size
    around = (size - 1) / size
    match collective.kind:
        case CollectiveKind.ALL_REDUCE:
            units, steps, whole = around, 2 * (size - 1), collective.operand_bytes
        case CollectiveKind.REDUCE_SCATTER:
            units, steps, whole = around / 2, size - 1, collective.operand_bytes
        case CollectiveKind.ALL_GATHER:
            units, steps, whole = around / 2, size - 1, collective.result_bytes
        case CollectiveKind.ALL_TO_ALL:
            units, steps, whole = _longest_side(size, slice_) / 4, 1, collective.operand_bytes
        case _:
            units, steps, whole = 1.0, 1, collective.operand_bytes
    # A group of two has one link each way between its members.
    if size == 2 and collective.kind is not CollectiveKind.COLLECTIVE_PERMUTE:
        units = {CollectiveKind.ALL_REDUCE: 1.0}.get(collective.kind, 0.5)
    transfer_s = units * whole / rate
    return calibration.launch_floor_s(collective.kind) + max(transfer_s, steps * calibration.hop_s)


def _longest_side(size: int, slice_: Slice) -> int:
    """Returns the longer side of the most compact block of so many chips that tiles the slice."""
    chips = max(1, size // slice_.cores)
    sides = [
        max(a, chips // a)
        for a in range(1, chips + 1)
        if chips % a == 0 and slice_.shape[0] % a == 0 and math.prod(slice_.shape[1:]) % (chips // a) == 0
    ]
    return max(2, min(sides, default=chips))
