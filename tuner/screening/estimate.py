"""A guess of the step time of a screened candidate, which orders the queue and decides nothing else.

Meant to be close to what the timeline will predict after a compile, on a good placement: products at what the compiler
reaches, attention from the kernel's table, the rest by its traffic, collectives on compact blocks of chips.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tuner.calibration.calibration import Calibration
from tuner.ports import Screened
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Loop, Node
from tuner.screening.bounds import lower_bound
from tuner.slices.slice import Slice
from tuner.timeline.compute import compute_seconds

# The compiler counts 1.03 to 1.14 times the roofline for large products, 1.8 for small ones (libtpu 0.0.50.1).
_MATMUL_EFFICIENCY = 0.85

# What compiled Wan steps keep of the screen's elementwise traffic; the rest is fused into products (libtpu 0.0.42.1).
_UNFUSED = 0.35

# What permutes cost although they run beside compute: partial results are merged in memory, and products beside them
# are scheduled less well. A share of their time, from the same programs.
_BESIDE = 0.2


# Share of the gathers in a loop that the step waits for; the rest runs ahead of use. From the same programs (0.25 to
# 0.4 for weights, 0.7 for keys and values).
_GATHERS_AWAITED = 0.5


def estimate(screened: Screened, slice_: Slice, calibration: Calibration) -> float:
    """Returns the estimated step time in seconds, never below the lower bound."""
    guess = _Clock(slice_, calibration).seconds(screened.program.schedule)
    return max(guess, lower_bound(screened, slice_, calibration).step_s)


class _Clock:
    def __init__(self, slice_: Slice, calibration: Calibration) -> None:
        self._slice = slice_
        self._calibration = calibration

    def seconds(self, nodes: tuple[Node, ...]) -> float:
        """Of a schedule: compute, then what is awaited of collectives; permutes run beside their trip's compute."""
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
                    seconds = collective_s(node, self._slice, self._calibration)
                    ahead = node.kind is CollectiveKind.ALL_GATHER
                    exposed += seconds * (_GATHERS_AWAITED if ahead else 1.0)
        return inner + exposed + max(compute + _BESIDE * hidden, hidden)

    def _compute(self, node: Compute) -> float:
        generation = self._slice.generation
        if node.kind is ComputeKind.MATMUL:
            memory_s = node.bytes / (generation.hbm_bytes_per_s * self._calibration.hbm_efficiency)
            share = _MATMUL_EFFICIENCY * min(1.0, self._calibration.matmul_efficiency)
            return max(node.flops / (generation.peak_flops * share), memory_s)
        if node.kernel is not None and node.kernel.kv_len < node.kernel.blocks[1]:
            # The layout's blocks are for its long sequences; a short one gets what suits it.
            node = replace(node, kernel=replace(node.kernel, blocks=(0, 0, 0)))
        seconds = compute_seconds(node, generation, self._calibration)
        return seconds if node.kernel is not None else seconds * _UNFUSED


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
