"""Compiled programs by use, in a store that lives and dies with the process and keeps what it has."""

from __future__ import annotations

from tuner.stores import ContentKey
from tuner.upkeep import Pruned, UpkeepStore


class MemoryUpkeepStore(UpkeepStore):
    """Programs are objects here, which take no compressed bytes: there is nothing to drop."""

    def use_program(self, key: ContentKey) -> None:
        """Has nobody to tell."""

    def prune_programs(self, *, most_bytes: int) -> Pruned:
        """Drops nothing."""
        return Pruned(dropped=0, dropped_bytes=0, kept=0, kept_bytes=0, needed_bytes=0)
