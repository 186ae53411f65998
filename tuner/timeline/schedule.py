"""A program's schedule with seconds for compute, evaluated over many placements at once.

Only what lies between a collective's start and its done overlaps with it. Links are first come, first served: a
transfer queues on each link behind what was launched before it, and ends when its last link does. Times are arrays
[placements, orders], because which axis the hardware routes first is not public and the worst order counts in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tuner.network.cost import Transfer
from tuner.network.fabric import Floats
from tuner.program.program import Collective, Compute, Done, Loop, Node, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Compute for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A collective starts; `waits` says that the program waits for its end at once."""

    collective: Collective
    operation: int
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """The program waits for a collective that was launched before."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A body that runs so many times."""

    trips: int
    body: tuple[Event, ...]


Event = Run | Launch | Await | Repeat


def events(
    nodes: tuple[Node, ...], seconds: Callable[[Compute], float], operation: Callable[[Collective], int]
) -> tuple[Event, ...]:
    """Returns a schedule's events, with neighbouring compute merged.

    Args:
        nodes: a program's schedule or a loop's body.
        seconds: time of an operation without communication.
        operation: number of a collective among those that differ in time.
    """
    out: list[Event] = []
    for node in nodes:
        match node:
            case Compute():
                before = out.pop().seconds if out and isinstance(out[-1], Run) else 0.0  # type: ignore[union-attr]
                out.append(Run(seconds=before + seconds(node)))
            case Collective():
                out.append(Launch(collective=node, operation=operation(node), waits=True))
            case Start():
                out.append(Launch(collective=node.collective, operation=operation(node.collective), waits=False))
            case Done():
                out.append(Await(name=node.name))
            case Loop():
                out.append(Repeat(trips=node.trips, body=events(node.body, seconds, operation)))
    return tuple(out)


def contended(schedule: tuple[Event, ...], in_flight: int = 0) -> frozenset[int]:
    """Returns the operations that are ever on the network together with another, or may be: their links matter one by
    one.

    Args:
        schedule: of a program or a loop's body.
        in_flight: asynchronous collectives that are on their way when it starts.
    """
    out: set[int] = set()
    for event in schedule:
        match event:
            case Launch():
                if in_flight or not event.waits:
                    out.add(event.operation)
                in_flight += not event.waits
            case Await():
                in_flight -= 1
            case Repeat():
                out |= contended(event.body, in_flight)
            case Run():
                pass
    return frozenset(out)


@dataclass(slots=True, kw_only=True)
class Clock:
    """Evaluates a schedule.

    Attributes:
        transfers: of every operation number.
        exposed_s: where not None, receives the time that the program waited for each collective, by name [n, orders].
    """

    transfers: list[Transfer]
    exposed_s: dict[str, Floats] | None = None
    _times: int = field(default=1)

    def run(self, schedule: tuple[Event, ...], shape: tuple[int, int]) -> Floats:
        """Returns the time of a schedule that starts with idle links [n, orders]; infinite if it cannot end."""
        with np.errstate(invalid="ignore"):
            end = self._advance(schedule, np.zeros(shape), Queues(self.transfers, shape))
        # After something that never ends, differences of times are no numbers.
        return np.where(np.isnan(end), np.inf, end)

    def _advance(self, schedule: tuple[Event, ...], now: Floats, links: Queues) -> Floats:
        ends: dict[str, Floats] = {}
        for event in schedule:
            match event:
                case Run():
                    now = now + event.seconds
                case Launch(waits=True):
                    end = links.launch(event.operation, now)
                    self._wait(event.collective.name, end - now)
                    now = end
                case Launch():
                    ends[event.collective.name] = links.launch(event.operation, now, stays=True)
                case Await():
                    end = ends.pop(event.name)
                    links.ended()
                    later = np.maximum(now, end)
                    self._wait(event.name, later - now)
                    now = later
                case Repeat():
                    now = self._repeat(event, now, links)
        return now

    def _repeat(self, loop: Repeat, now: Floats, links: Queues) -> Floats:
        if loop.trips == 0:
            return now
        steady = loop.trips
        if links.in_flight:  # the first trip shares links with what was launched before the loop
            now = self._advance(loop.body, now, links)
            steady -= 1
        if steady:
            self._times *= steady
            now = now + steady * self._advance(loop.body, np.zeros_like(now), Queues(self.transfers, links.shape))
            self._times //= steady
        return now

    def _wait(self, name: str, seconds: Floats) -> None:
        if self.exposed_s is not None:
            self.exposed_s[name] = self.exposed_s.get(name, 0.0) + seconds * self._times


class Queues:
    """When each link is free again, kept only while something asynchronous is in flight."""

    def __init__(self, transfers: list[Transfer], shape: tuple[int, int]) -> None:
        self.shape = shape
        self.in_flight = 0
        self._transfers = transfers
        self._free: Floats | None = None

    def ended(self) -> None:
        """Notes that one asynchronous collective was waited for."""
        self.in_flight -= 1

    def launch(self, operation: int, now: Floats, *, stays: bool = False) -> Floats:
        """Returns when a transfer that is launched now ends [n, orders]."""
        transfer = self._transfers[operation]
        if not self.in_flight:
            self._free = None
        self.in_flight += stays
        if transfer.busy_s is None or (self._free is None and not stays):
            return now + transfer.alone_s
        busy, start = transfer.busy_s, now[..., None]
        free = np.broadcast_to(start, busy.shape) if self._free is None else np.maximum(self._free, start)
        used = busy > 0
        after = free + busy
        wait: Floats = np.where(used, after - start, 0.0).max(axis=-1)
        self._free = np.where(used, after, free)
        end: Floats = now + transfer.fixed_s + np.maximum(transfer.steps_s, wait)
        return end
