"""Keeping the database small: which compiled programs and which leases may go."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.stores import ContentKey

MOST_PROGRAM_BYTES = 4 << 30
"""What compiled programs may take, compressed, unless something else is asked for."""

OLD = timedelta(days=1)
"""A lease that ran out so long ago tells nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a pruning dropped and what it left, in programs and in compressed bytes.

    Attributes:
        dropped, dropped_bytes: what is gone; a search that needs one compiles it again.
        kept, kept_bytes: what is left.
        needed_bytes: of what is left, programs of active plans, which stay whatever they take.
    """

    dropped: int
    dropped_bytes: int
    kept: int
    kept_bytes: int
    needed_bytes: int


class UpkeepStore(abc.ABC):
    """Compiled programs by when they were last of use, and what vanished workers left."""

    @abc.abstractmethod
    def use_program(self, key: ContentKey) -> None:
        """Notes that the program of a key was of use, to the day; does nothing if there is none."""

    @abc.abstractmethod
    def prune_programs(self, *, most_bytes: int) -> Pruned:
        """Drops programs until the rest takes at most `most_bytes`, those first that were of use the longest ago.

        Programs of candidates in active plans stay: what an active plan points to can always be explained.
        """

    @abc.abstractmethod
    def drop_old_leases(self) -> int:
        """Drops leases that ran out more than a day ago, of workers that vanished; returns how many."""
