"""Step times of one program under many placements.

Everything that does not depend on the placement is done once: seconds of compute, distinct collectives, their patterns.
Collectives over the same groups share the loads of their pattern, and groups of the same chips are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.calibration.calibration import Calibration
from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.network.bounds import cut_bound_s
from tuner.network.cost import CollectiveCost, Degraded, Network, Transfer
from tuner.network.fabric import Floats, Ints, Order
from tuner.network.loads import UnitLoads
from tuner.network.patterns import Flow, Pattern
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Program
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice
from tuner.timeline.axes import spanned_axes
from tuner.timeline.compute import compute_seconds, is_guessed
from tuner.timeline.prediction import MOST_LINKS, CollectiveTime, Prediction
from tuner.timeline.schedule import Clock, contended, events
from tuner.timeline.trace import Trace, Tracer, in_order
from tuner.timeline.traffic import busy_links

FLOATS_AT_ONCE = 1 << 19
"""Bound on link loads in memory at once (4 MiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """Collectives that take the same time: kind, bytes and pattern. `pattern` is None between slices."""

    collective: Collective
    pattern: Pattern | None


class Ranker:
    """Scores placements of one program on one slice.

    Args:
        program: a schedule for as many devices as the slice has.
        slice_: the slice.
        layout: names the mesh axes; its sizes multiply to the number of devices.
        calibration: constants of the slice's generation.
        degraded: links that run slower than the others.

    Raises InvalidValue if the numbers of devices differ.
    """

    def __init__(
        self,
        program: Program,
        slice_: Slice,
        layout: Layout,
        calibration: Calibration,
        degraded: Sequence[Degraded] = (),
    ) -> None:
        if not program.devices == slice_.num_devices == layout.devices:
            raise InvalidValue(
                f"a program for {program.devices} devices and layout {layout} ({layout.devices} devices) "
                f"do not fit {slice_.name} ({slice_.num_devices} devices)"
            )
        self.program, self.slice_, self.layout = program, slice_, layout
        self.network = Network(slice_, calibration, degraded)
        self._operations: dict[tuple[object, ...], int] = {}
        self._distinct: list[_Operation] = []
        self._time_compute()
        self._contended = contended(self._schedule)
        self._shared = {self._distinct[number].pattern for number in self._contended}
        self._counts = np.zeros(len(self._distinct), np.int64)
        for node, times in program.walk():
            if isinstance(node, Collective):
                self._counts[self._number(node)] += times

    def recalibrated(self, calibration: Calibration) -> Ranker:
        """Returns a ranker of the same program under other constants; what was found out about loads is shared."""
        again = copy(self)
        again.network = self.network.recalibrated(calibration)
        again._time_compute()
        return again

    def _time_compute(self) -> None:
        self._schedule = events(self.program.schedule, self._seconds, self._number)
        computes = ((node, times) for node, times in self.program.walk() if isinstance(node, Compute))
        self._compute_s = sum((times * self._seconds(node) for node, times in computes), 0.0)

    def _seconds(self, operation: Compute) -> float:
        return compute_seconds(operation, self.slice_.generation, self.network.calibration)

    def _number(self, collective: Collective) -> int:
        dcn = collective.kind is CollectiveKind.DCN
        pattern = None if dcn else Pattern.of(collective)
        key = (collective.kind, collective.operand_bytes, collective.result_bytes, pattern)
        if key not in self._operations:
            self._operations[key] = len(self._distinct)
            self._distinct.append(_Operation(collective=collective, pattern=pattern))
        return self._operations[key]

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Distinct patterns that the program's collectives make, in order of appearance."""
        return tuple(dict.fromkeys(op.pattern for op in self._distinct if op.pattern is not None))

    def direct(self, placements: Ints) -> NDArray[np.bool_]:
        """Returns for each placement which of `patterns` have direct routes throughout [n, patterns].

        All of them have, but on v5e slices of more than 16 chips. There a ring without them does not compile, and a
        compiled program fits the placements that give its exchanges and permutes the same answers.
        """
        columns = [self.network.unit_loads(p, placements, self._orders(p)[0]).direct for p in self.patterns]
        return np.stack(columns, axis=1) if columns else np.ones((len(placements), 0), bool)

    def verdict(self, placement: Placement) -> Rejection | None:
        """Returns why the compiler will refuse the program under a placement, or None."""
        for pattern, direct in zip(self.patterns, self.direct(np.asarray([placement.devices]))[0], strict=True):
            if pattern.flow is Flow.RING and not direct:
                op = next(op.collective for op in self._distinct if op.pattern == pattern)
                axes = "+".join(spanned_axes(op, self.layout)) or "-"
                return Rejection(
                    stage=Stage.PLACE,
                    reason=RejectReason.ROUTING,
                    detail=f"{op.kind} over {axes} in groups of {op.group_size} is on chips without routes between "
                    f"them on {self.slice_.name}; evenly strided rectangles with hops of 1, 2, 4 or 8 are legal",
                    numbers={"group_size": op.group_size},
                )
        return None

    def step_s(self, placements: Ints) -> Floats:
        """Returns the step time under each placement [n].

        Args:
            placements: device index of each logical id [n, devices].
        """
        network = self.network
        orders = len(network.fabric.orders)
        kept = 1 + len(self._contended)
        chunk = max(1, FLOATS_AT_ONCE // (network.fabric.num_links * orders * kept))
        parts = [self._chunk_s(placements[at : at + chunk]) for at in range(0, len(placements), chunk)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _chunk_s(self, placements: Ints) -> Floats:
        transfers = self._transfers(placements)
        shape = (len(placements), len(self.network.fabric.orders))
        if self._contended:
            total = Clock(transfers=transfers).run(self._schedule, shape)
        else:
            total = np.full(shape, self._compute_s)
            for transfer, times in zip(transfers, self._counts.tolist(), strict=True):
                if times:
                    total += times * transfer.alone_s
        return np.asarray(total.max(axis=1))

    def _transfers(self, placements: Ints) -> list[Transfer]:
        busy: dict[Pattern, tuple[UnitLoads, Floats, Floats | None]] = {}
        for pattern in self.patterns:
            orders, spread = self._orders(pattern)
            unit = self.network.unit_loads(pattern, placements, orders)
            links = self.network.busy(pattern, unit)
            worst = self.network.worst(pattern, unit, links)[:, spread]
            busy[pattern] = (unit, worst, links if pattern in self._shared else None)
        return [self._transfer(op, busy, len(placements)) for op in self._distinct]

    def _orders(self, pattern: Pattern) -> tuple[tuple[Order, ...], list[int]]:
        """Returns the orders to route a pattern in, and which of them stands for each order of the fabric."""
        fabric = self.network.fabric
        if pattern in self._shared or pattern.flow is Flow.PERMUTE:
            return fabric.orders, list(range(len(fabric.orders)))
        kept = fabric.mirrored_orders
        return kept, [kept.index(min(order, order[::-1])) for order in fabric.orders]

    def _transfer(
        self, operation: _Operation, busy: dict[Pattern, tuple[UnitLoads, Floats, Floats | None]], count: int
    ) -> Transfer:
        collective = operation.collective
        if operation.pattern is None:
            alone = np.full((count, 1), self.network.between_slices_s(collective))
            return Transfer(fixed_s=alone, steps_s=np.zeros((count, 1)), alone_s=alone)
        return self.network.transfer(collective, *busy[operation.pattern])

    def predict(self, placement: Placement) -> Prediction:
        """Returns the step under one placement with every figure."""
        devices = np.asarray([placement.devices])
        transfers = self._transfers(devices)
        clock = Clock(transfers=transfers, exposed_s={})
        per_order = clock.run(self._schedule, (1, len(self.network.fabric.orders)))
        order = int(per_order[0].argmax())
        exposed = {
            name: float(np.broadcast_to(s, per_order.shape)[0, order]) for name, s in (clock.exposed_s or {}).items()
        }
        collectives = self._collectives(placement, exposed)
        links = busy_links(self.network.fabric, self.link_seconds(placement))
        by_kind = dict.fromkeys((*ComputeKind, "attention"), 0.0)
        unknown: dict[str, None] = {}
        flops = 0.0
        for node, times in self.program.walk():
            if isinstance(node, Compute):
                kind = "attention" if node.kernel is not None else node.kind
                by_kind[kind] += times * self._seconds(node)
                flops += times * (node.kernel.flops if node.kernel is not None else node.flops)
                if is_guessed(node, self.slice_.generation):
                    unknown[node.name] = None
        exists = self.network.fabric.exists
        return Prediction(
            step_s=float(per_order[0, order]),
            matmul_s=by_kind[ComputeKind.MATMUL],
            memory_s=by_kind[ComputeKind.MEMORY],
            copy_s=by_kind[ComputeKind.COPY],
            attention_s=by_kind["attention"],
            kernel_s=by_kind[ComputeKind.KERNEL],
            exposed_communication_s=sum(exposed.values()),
            communication_s=sum(c.times * c.alone_s for c in collectives),
            communication_bound_s=sum(c.times * c.bound_s for c in collectives),
            peak_compute_s=flops / self.slice_.generation.peak_flops,
            received_bytes=self.program.received_bytes,
            links=int(exists.sum()),
            idle_links=int(exists.sum()) - len(links),
            busiest_link=links[0].name if links else "",
            busiest_link_s=links[0].busy_s if links else 0.0,
            unknown_kernels=tuple(unknown),
            collectives=tuple(sorted(collectives, key=lambda c: (-c.exposed_s, c.name))),
            busy_links=links[:MOST_LINKS],
        )

    def trace(self, placement: Placement) -> Trace:
        """Returns when each operation runs under one placement, in the order of routing that is worst.

        Raises InvalidValue if the step never ends there.
        """
        transfers = self._transfers(np.asarray([placement.devices]))
        orders = len(self.network.fabric.orders)
        order = int(Clock(transfers=transfers).run(self._schedule, (1, orders))[0].argmax())
        chosen = [in_order(transfer, order) for transfer in transfers]
        return Tracer(transfers=chosen, seconds=self._seconds, operation=self._number).step(self.program.schedule)

    def link_seconds(self, placement: Placement, user: Callable[[Collective], str] | None = None) -> dict[str, Floats]:
        """Returns how long each link is busy over the step [num_links], by who uses it.

        Args:
            placement: of the program.
            user: names whom a collective's seconds are put down to; None for the mesh axes that it runs over.
        """
        named = user or (lambda collective: "+".join(spanned_axes(collective, self.layout)) or "-")
        out: dict[str, Floats] = {}
        for collective, times, cost in self._costs(placement):
            with np.errstate(invalid="ignore"):
                seconds = np.where(cost.loads > 0, cost.loads * self.network.seconds_per_byte, 0.0)
            label = named(collective)
            out[label] = out.get(label, 0.0) + times * seconds
        return out

    def _costs(self, placement: Placement) -> list[tuple[Collective, int, CollectiveCost]]:
        """Returns every collective by name with the times that it runs and its cost alone."""
        times: dict[str, int] = {}
        named: dict[str, Collective] = {}
        for node, count in self.program.walk():
            if isinstance(node, Collective):
                times[node.name] = times.get(node.name, 0) + count
                named[node.name] = node
        return [(c, times[name], self.network.cost(c, placement.devices)) for name, c in named.items()]

    def _collectives(self, placement: Placement, exposed: dict[str, float]) -> list[CollectiveTime]:
        link_name = self.network.fabric.link_name
        return [
            CollectiveTime(
                name=collective.name,
                kind=collective.kind,
                axes=spanned_axes(collective, self.layout),
                times=times,
                operand_bytes=collective.operand_bytes,
                alone_s=cost.time_s,
                bound_s=cut_bound_s(self.network, collective, placement.devices),
                exposed_s=exposed.get(collective.name, 0.0),
                busiest_link=link_name(cost.busiest_link) if cost.busiest_link >= 0 else "",
                busiest_bytes=cost.busiest_bytes,
            )
            for collective, times, cost in self._costs(placement)
        ]
