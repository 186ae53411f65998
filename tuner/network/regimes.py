"""Which algorithm the compiler takes for a message size, as far as it decides the time.

Thresholds are of libtpu 0.0.50.1 with default flags, found by sweeping the operand's size; all are bytes of the operand
on one device. How often the way around is gone follows from the names and loops of the emitters and are not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.program.program import Collective, CollectiveKind

SINGLE_PHASE_BYTES = 10 << 10
"""Up to this, an all-reduce passes the whole operand once around (`xla_jf_single_phase_ring_max_kib`)."""

SHORT_BYTES = 1 << 20
"""Below this, an all-reduce sends both ways at once from each device (pincer); from it on, in two colours."""

LARGE_GROUP = 16
"""From this size of group on, pincers are used for all sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """How a collective runs.

    Attributes:
        rounds: how often the way around the ring is gone, one transfer after another.
        operand_bytes: bytes of one device that the unit load is multiplied with.
    """

    rounds: float
    operand_bytes: float


def regime(collective: Collective) -> Regime:
    """Returns the regime of a collective over groups of its size."""
    g = collective.group_size
    match collective.kind:
        case CollectiveKind.ALL_REDUCE:
            size = collective.operand_bytes
            if size <= SINGLE_PHASE_BYTES:
                # One edge carries the whole operand g-1 times; the unit load counts (g-1)/g of it.
                return Regime(rounds=1, operand_bytes=float(size * g))
            # A pincer goes half of the way both ways at once, to scatter and again to gather; a colour goes all of it.
            pincer = g >= LARGE_GROUP or size < SHORT_BYTES
            return Regime(rounds=1 if pincer else 2, operand_bytes=float(size))
        case CollectiveKind.ALL_GATHER:
            # 2(g-1) half-shard receives, both ways at once; a large group receives whole shards from both sides.
            return Regime(rounds=0.5 if g >= LARGE_GROUP else 1, operand_bytes=collective.result_bytes / 2)
        case CollectiveKind.REDUCE_SCATTER:
            return Regime(rounds=0.5, operand_bytes=collective.operand_bytes / 2)
        case _:
            return Regime(rounds=1, operand_bytes=float(collective.operand_bytes))
