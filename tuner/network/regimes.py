"""Which algorithm the compiler takes for a message size, as far as it decides the time: steps, and bytes of a step.

Thresholds are of libtpu 0.0.50.1 with default flags, found by sweeping the operand's size; all are bytes of the operand
on one device. Steps follow from the names and loops of the emitters and are not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.program.program import Collective, CollectiveKind

SINGLE_PHASE_BYTES = 10 << 10
"""Up to this, an all-reduce passes the whole operand once around (`xla_jf_single_phase_ring_max_kib`)."""

SHORT_BYTES, SHORT_BYTES_LARGE_GROUP = 1 << 20, (5 << 20) // 2
"""Below this, an all-reduce sends both ways at once from each device (pincer); from it on, in two colours."""

LARGE_GROUP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """How a collective runs.

    Attributes:
        steps: transfers that wait for one another.
        operand_bytes: bytes of one device that the unit load is multiplied with.
    """

    steps: int
    operand_bytes: float


def regime(collective: Collective) -> Regime:
    """Returns the regime of a collective over groups of its size."""
    g = collective.group_size
    match collective.kind:
        case CollectiveKind.ALL_REDUCE:
            size = collective.operand_bytes
            if size <= SINGLE_PHASE_BYTES:
                # One edge carries the whole operand g-1 times; the unit load counts (g-1)/g of it.
                return Regime(steps=g - 1, operand_bytes=float(size * g))
            if g >= LARGE_GROUP or size < SHORT_BYTES:
                return Regime(steps=2 * (g // 2), operand_bytes=float(size))
            return Regime(steps=2 * (g - 1), operand_bytes=float(size))
        case CollectiveKind.ALL_GATHER:
            # 2(g-1) half-shard receives, both ways at once; a large group receives whole shards from both sides.
            steps = g // 2 if g >= LARGE_GROUP else g - 1
            return Regime(steps=steps, operand_bytes=collective.result_bytes / 2)
        case CollectiveKind.REDUCE_SCATTER:
            return Regime(steps=g // 2, operand_bytes=collective.operand_bytes / 2)
        case _:
            return Regime(steps=1, operand_bytes=float(collective.operand_bytes))
