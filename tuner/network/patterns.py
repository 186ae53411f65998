"""Who talks to whom in a collective, whatever its size."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tuner.errors import InvalidValue
from tuner.program.program import Collective, CollectiveKind


class Flow(StrEnum):
    """How the members of a group exchange data."""

    RING = "ring"
    EXCHANGE = "exchange"
    PERMUTE = "permute"


FLOWS = {
    CollectiveKind.ALL_REDUCE: Flow.RING,
    CollectiveKind.ALL_GATHER: Flow.RING,
    CollectiveKind.REDUCE_SCATTER: Flow.RING,
    CollectiveKind.ALL_TO_ALL: Flow.EXCHANGE,
    CollectiveKind.COLLECTIVE_PERMUTE: Flow.PERMUTE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Who talks to whom in one collective.

    Attributes:
        flow: how.
        members: groups of logical ids for rings and exchanges; (source, target) for permutes. A group that is smaller
            than others is filled up with its last member, so that all rows are of one length.
    """

    flow: Flow
    members: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        sizes = {len(row) for row in self.members}
        if len(sizes) != 1:
            raise InvalidValue(f"{self.flow} over groups of sizes {sorted(sizes)}; groups of one size are legal")

    @classmethod
    def of(cls, collective: Collective) -> Pattern:
        """Returns the pattern of a collective over chip-to-chip links. Raises InvalidValue for other networks."""
        if collective.kind not in FLOWS:
            raise InvalidValue(f"{collective.kind} {collective.name!r} does not use the links of a slice")
        flow = FLOWS[collective.kind]
        members = [tuple(row) for row in (collective.pairs if flow is Flow.PERMUTE else collective.groups)]
        size = max(map(len, members))
        if flow is Flow.EXCHANGE or (flow is Flow.RING and size <= 2):
            # The order inside a group changes nothing here, so collectives that list it otherwise share the work.
            members = [tuple(sorted(row)) for row in members]
        members = [row + row[-1:] * (size - len(row)) for row in members]
        return cls(flow=flow, members=tuple(sorted(members)))
