"""When each operation of a step runs, for people to look at: what `Clock` adds up, kept apart.

Loops are folded: a loop is one span, with the trace of one of its trips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.errors import InvalidValue
from tuner.network.cost import Transfer
from tuner.network.fabric import Floats
from tuner.program.program import Collective, Compute, ComputeKind, Done, Loop, Node, Start
from tuner.timeline.schedule import Queues

ATTENTION = "attention"
LOOP = "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation, several of one kind after another, or a loop.

    Attributes:
        kind: of compute, ``attention``, of a collective, or ``loop``.
        name: the instruction; of several, the longest one.
        start_s: from the start of the trace that it is in.
        end_s: in the same.
        operations: how many it stands for.
        collective: what is sent; None for compute and loops.
        exposed_s: how long the program waits for it.
        body: of a loop: one trip.
    """

    kind: str
    name: str
    start_s: float
    end_s: float
    operations: int = 1
    collective: Collective | None = None
    exposed_s: float = 0.0
    body: Trace | None = None

    @property
    def seconds(self) -> float:
        """From its start to its end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A step, or one trip of a loop: its spans in order of their start."""

    name: str
    seconds: float
    trips: int = 1
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracer:
    """Follows a schedule under one placement, as `Clock` does.

    Attributes:
        transfers: of every operation number, in one order of routing [1, 1].
        seconds: time of an operation without communication.
        operation: number of a collective.
    """

    transfers: Sequence[Transfer]
    seconds: Callable[[Compute], float]
    operation: Callable[[Collective], int]

    def step(self, schedule: tuple[Node, ...]) -> Trace:
        """Returns the trace of a whole step. Raises InvalidValue if it never ends."""
        now, spans = self._follow(schedule, 0.0, self._queues())
        if not math.isfinite(now):
            raise InvalidValue("a step that sends over a missing link, or along a route that is not there, never ends")
        return Trace(name="step", seconds=now, spans=spans)

    def _queues(self) -> Queues:
        return Queues(list(self.transfers), (1, 1))

    def _launch(self, collective: Collective, now: float, queues: Queues, *, stays: bool) -> float:
        end: Floats = queues.launch(self.operation(collective), np.full((1, 1), now), stays=stays)
        return float(end.ravel()[0])

    def _follow(self, schedule: tuple[Node, ...], now: float, queues: Queues) -> tuple[float, tuple[Span, ...]]:
        spans: list[Span] = []
        pending: dict[str, int] = {}
        for node in schedule:
            match node:
                case Compute():
                    end = now + self.seconds(node)
                    _run(spans, node, now, end)
                    now = end
                case Collective():
                    end = self._launch(node, now, queues, stays=False)
                    spans.append(_sent(node, now, end, exposed_s=end - now))
                    now = end
                case Start():
                    end = self._launch(node.collective, now, queues, stays=True)
                    pending[node.collective.name] = len(spans)
                    spans.append(_sent(node.collective, now, end))
                case Done():
                    at = pending.pop(node.name)
                    queues.ended()
                    end = spans[at].end_s
                    spans[at] = replace(spans[at], exposed_s=max(0.0, end - now))
                    now = max(now, end)
                case Loop(trips=trips) if trips:
                    now = self._loop(spans, node, now, queues)
                case Loop():
                    pass
        return now, tuple(spans)

    def _loop(self, spans: list[Span], loop: Loop, now: float, queues: Queues) -> float:
        start, steady = now, loop.trips
        if queues.in_flight:  # the first trip shares links with what was launched before the loop
            now, body = self._follow(loop.body, now, queues)
            seconds, steady = now - start, steady - 1
            body = tuple(replace(span, start_s=span.start_s - start, end_s=span.end_s - start) for span in body)
        if steady:
            seconds, body = self._follow(loop.body, 0.0, self._queues())
            now += steady * seconds
        trace = Trace(name=loop.name, seconds=seconds, trips=loop.trips, spans=body)
        spans.append(Span(kind=LOOP, name=loop.name, start_s=start, end_s=now, body=trace))
        return now


def _sent(collective: Collective, start_s: float, end_s: float, exposed_s: float = 0.0) -> Span:
    return Span(
        kind=collective.kind.value,
        name=collective.name,
        start_s=start_s,
        end_s=end_s,
        collective=collective,
        exposed_s=exposed_s,
    )


def _run(spans: list[Span], operation: Compute, start_s: float, end_s: float) -> None:
    """Adds an operation, to the last span if that is of the same kind and nothing came between."""
    if end_s <= start_s:
        return
    kind = ATTENTION if operation.kernel is not None else operation.kind.value
    last = spans[-1] if spans else None
    if last is None or last.kind != kind or last.end_s != start_s or kind == ComputeKind.SCALAR:
        spans.append(Span(kind=kind, name=operation.name, start_s=start_s, end_s=end_s))
        return
    longest = operation.name if end_s - start_s > last.seconds / last.operations else last.name
    spans[-1] = replace(last, name=longest, end_s=end_s, operations=last.operations + 1)


def in_order(transfer: Transfer, order: int) -> Transfer:
    """Returns what a transfer asks of the network in one order of routing, for the first placement."""

    def only(values: Floats) -> Floats:
        return values[:1, order : order + 1] if values.shape[1] > 1 else values[:1]

    return Transfer(
        fixed_s=only(transfer.fixed_s),
        steps_s=only(transfer.steps_s),
        alone_s=only(transfer.alone_s),
        busy_s=None if transfer.busy_s is None else only(transfer.busy_s),
    )
