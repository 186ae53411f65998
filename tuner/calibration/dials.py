"""The constants of a calibration that rows of observations may turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tuner.calibration.calibration import Calibration
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Program

LAUNCH = "launches."
"""Prefix of the floor of one kind of collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """One constant.

    Attributes:
        name: a field of `Calibration`, or ``launches.`` and a kind of collective.
        low, high: what it may be turned to. Shares of a documented rate end at 1: nothing is faster than the hardware,
            and lower bounds of the search count on it.
        turns: whether an operation's time depends on it.
    """

    name: str
    low: float
    high: float
    turns: Callable[[Compute | Collective], bool]

    def read(self, calibration: Calibration) -> float:
        """Returns the constant's value."""
        if self.name.startswith(LAUNCH):
            return calibration.launch_floor_s(CollectiveKind(self.name.removeprefix(LAUNCH)))
        return float(getattr(calibration, self.name))

    def write(self, calibration: Calibration, value: float) -> Calibration:
        """Returns the record with the constant at a value."""
        if self.name.startswith(LAUNCH):
            floors = dict(calibration.launches) | {self.name.removeprefix(LAUNCH): value}
            return replace(calibration, launches=tuple(sorted(floors.items())))
        changes: dict[str, Any] = {self.name: value}
        return replace(calibration, **changes)


def dials(start: Calibration, programs: Iterable[Program]) -> tuple[Dial, ...]:
    """Returns the constants that some operation of the programs depends on."""
    operations = {id(node): node for program in programs for node, _ in program.walk()}.values()
    return tuple(dial for dial in _all(start) if any(map(dial.turns, operations)))


def _all(start: Calibration) -> Iterator[Dial]:
    for kind in CollectiveKind:
        if kind is not CollectiveKind.DCN:
            yield Dial(name=LAUNCH + kind.value, low=1e-7, high=1e-1, turns=_launches(kind))
    if start.hop_s > 0:
        yield Dial(name="hop_s", low=1e-9, high=1e-3, turns=_uses_links)
    yield Dial(name="link_efficiency", low=0.05, high=1.0, turns=_uses_links)
    if start.core_link_bytes_per_s > 0:
        yield Dial(name="core_link_bytes_per_s", low=1e10, high=1e13, turns=_uses_links)
    yield Dial(name="shared_link_efficiency", low=0.2, high=1.0, turns=_may_share_links)
    yield Dial(name="hbm_efficiency", low=0.05, high=1.0, turns=_uses_memory)
    yield Dial(name="matmul_efficiency", low=0.05, high=1.5, turns=_of_kind(ComputeKind.MATMUL))
    yield Dial(name="attention_efficiency", low=0.2, high=2.0, turns=_is_attention)


def _launches(kind: CollectiveKind) -> Callable[[Compute | Collective], bool]:
    return lambda node: isinstance(node, Collective) and node.kind is kind


def _of_kind(kind: ComputeKind) -> Callable[[Compute | Collective], bool]:
    return lambda node: isinstance(node, Compute) and node.kind is kind


def _uses_links(node: Compute | Collective) -> bool:
    return isinstance(node, Collective) and node.kind is not CollectiveKind.DCN


def _may_share_links(node: Compute | Collective) -> bool:
    return isinstance(node, Collective) and node.kind in (
        CollectiveKind.COLLECTIVE_PERMUTE,
        CollectiveKind.ALL_TO_ALL,
    )


def _uses_memory(node: Compute | Collective) -> bool:
    return isinstance(node, Compute) and node.kind is not ComputeKind.SCALAR


def _is_attention(node: Compute | Collective) -> bool:
    return isinstance(node, Compute) and node.kernel is not None
