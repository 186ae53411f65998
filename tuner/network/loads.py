"""From patterns and placements to the load of every directed link, for many placements at once.

The unit load of a pattern is the load of each link when every device brings one byte, with all groups at once. Where
the load of a group depends only on which devices are in it, it is computed once for each set of devices and looked up
afterwards, unless routing it anew is less work than adding it up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.network.fabric import Fabric, Floats, Ints, Order
from tuner.network.patterns import Flow, Pattern
from tuner.network.reach import is_limited, reachable
from tuner.network.rings import TOPOLOGY_AWARE, Walk, may_have_own_order, ring_share, walks
from tuner.network.sets import Columns, SetTable

PAIRS_AT_ONCE = 1 << 18
"""Bound on routed pairs in memory at once."""

REMEMBERED_FLOATS = 1 << 23
"""Bound on remembered loads of one kind of group (64 MiB)."""

REMEMBERED_RINGS = 1 << 17
"""Bound on remembered rings of one size of group."""

WORK_OF_PAIR = 8
"""Routing a pair costs about as much as adding the loads of so many links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLoads:
    """What one byte on every device costs the network, for n placements.

    Attributes:
        loads: bytes on each link [n, orders, num_links].
        hops: longest distance of a transfer [n].
        way: hops once around a ring, or around one on each axis after the other [n]; `hops` where there is no ring.
        direct: whether every transfer has a route; never False where routing is not limited [n].
    """

    loads: Floats
    hops: Ints
    way: Ints
    direct: NDArray[np.bool_]


class Loader:
    """Computes unit loads on one fabric and remembers what it can."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._names = np.random.default_rng(0).integers(1, 1 << 63, fabric.slice_.num_devices, np.uint64)
        self._loads: dict[tuple[Flow, int, tuple[Order, ...]], SetTable] = {}
        self._rings: dict[int, SetTable] = {}

    def unit_loads(self, pattern: Pattern, placements: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        """Returns the unit loads of a pattern.

        Args:
            pattern: over logical ids below the number of devices.
            placements: device index of each logical id [n, devices].
            orders: orders of axes to route in.
        """
        devices = placements[:, np.asarray(pattern.members)]
        size = devices.shape[-1]
        if pattern.flow is not Flow.PERMUTE and any(row[-1] == row[-2] for row in pattern.members if size > 1):
            return self._mixed(pattern, devices, orders)
        match pattern.flow:
            case Flow.PERMUTE:
                return self._sent(devices[..., 0], devices[..., 1], 1.0, orders)
            case Flow.EXCHANGE:
                if self._worth_remembering(size * (size - 1)):
                    return self._remembered(Flow.EXCHANGE, devices, orders)
                source, target = _every_pair(size)
                return self._sent(devices[..., source], devices[..., target], 1 / size, orders)
            case Flow.RING:
                if self._worth_remembering(2 * size) or self._may_go_by_axis(size):
                    return self._remembered(Flow.RING, devices, orders)
                rings, own = self._in_ring_order(devices)
                around = self._around(rings, orders)
                return replace(around, direct=around.direct & (own | self._may_list(size)))

    def _mixed(self, pattern: Pattern, devices: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        """Adds up groups of several sizes. Rings take the compiler's own order only if all of them have one, and are
        never worked on axis by axis."""
        sizes = np.array([len(set(row)) for row in pattern.members])
        parts = [devices[:, sizes == size, :size] for size in np.unique(sizes[sizes > 1]).tolist()]
        if pattern.flow is Flow.EXCHANGE:
            pairs = [(part, *_every_pair(part.shape[-1])) for part in parts]
            sent = [self._sent(p[..., a], p[..., b], 1 / p.shape[-1], orders) for p, a, b in pairs]
        else:
            own = np.full(len(devices), self.fabric.slice_.generation_name in TOPOLOGY_AWARE)
            rings = []
            for part in parts if own.all() else ():
                ring, known = self._in_ring_order(part)
                rings.append(ring)
                own &= known
            chosen = [np.where(own[:, None, None], r, p) for r, p in zip(rings, parts, strict=True)] if rings else parts
            sent = [self._around(ring, orders) for ring in chosen]
            sent = [replace(s, direct=s.direct & (own | self._may_list(len(pattern.members[0])))) for s in sent]
        return UnitLoads(
            loads=np.sum([s.loads for s in sent], axis=0),
            hops=np.stack([s.hops for s in sent]).max(axis=0),
            way=np.stack([s.way for s in sent]).max(axis=0),
            direct=np.asarray(np.stack([s.direct for s in sent]).all(axis=0)),
        )

    def _worth_remembering(self, pairs: int) -> bool:
        return self.fabric.num_links <= WORK_OF_PAIR * pairs

    def _may_go_by_axis(self, size: int) -> bool:
        """Returns whether a group of that size may be the whole slice or one whole plane of it."""
        slice_ = self.fabric.slice_
        planes = [slice_.num_chips // extent for extent in slice_.shape] if len(slice_.shape) == 3 else []
        return size in {chips * cores for chips in (*planes, slice_.num_chips) for cores in (1, slice_.cores)}

    def _remembered(self, flow: Flow, devices: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        """Adds up the loads of sets; where one group of a ring has no order of its own, all are taken as listed."""
        size = devices.shape[-1]
        key = (flow, size, orders)
        if key not in self._loads:
            width = len(orders) * self.fabric.num_links
            compute = self._exchanges if flow is Flow.EXCHANGE else self._walked
            self._loads[key] = SetTable(
                self._names, lambda groups: compute(groups, orders), max(1, REMEMBERED_FLOATS // width)
            )
        rows, (set_loads, set_hops, set_way, set_direct, set_known) = self._loads[key].look_up(devices)
        loads = set_loads[rows[:, 0]]
        for group in range(1, rows.shape[1]):
            loads += set_loads[rows[:, group]]
        hops, way = set_hops[rows].max(axis=1), set_way[rows].max(axis=1)
        direct = np.asarray(set_direct[rows].all(axis=1))
        listed = np.asarray(~set_known[rows].all(axis=1))
        if listed.any():
            around = self._around(devices[listed], orders)
            loads[listed], hops[listed], way[listed] = around.loads, around.hops, around.way
            direct[listed] = around.direct & self._may_list(size)
        return UnitLoads(loads=loads, hops=hops, way=way, direct=direct)

    def _may_list(self, size: int) -> bool:
        """Returns whether the compiler takes groups in their listed order where it has none of its own."""
        return size <= 2 or not is_limited(self.fabric.slice_)

    def _in_ring_order(self, devices: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Returns the devices in the order of the ring [n, groups, size], and whether it is the compiler's own [n]."""
        size = devices.shape[-1]
        if size not in self._rings:
            self._rings[size] = SetTable(self._names, self._ring_of, REMEMBERED_RINGS)
        rows, (rings, known) = self._rings[size].look_up(devices)
        own = np.asarray(known[rows].all(axis=1))
        return np.where(own[:, None, None], rings[rows], devices), own

    def _around(self, rings: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        after = np.roll(rings, -1, axis=-1)
        ends = (np.stack([rings, after], axis=-1), np.stack([after, rings], axis=-1))
        sent = self._sent(*ends, ring_share(rings.shape[-1]), orders)
        return replace(sent, way=(rings.shape[-1] - 1) * sent.hops)

    def _sent(self, source: Ints, target: Ints, share: float, orders: tuple[Order, ...]) -> UnitLoads:
        """Routes pairs [n, ...] that send `share` each."""
        count = len(source)
        source, target = source.reshape(count, -1), target.reshape(count, -1)
        loads = np.empty((count, len(orders), self.fabric.num_links))
        hops, direct = np.empty(count, np.int64), np.ones(count, bool)
        for at in _chunks(count, source.shape[1]):
            np.multiply(self.fabric.loads(source[at], target[at], orders), share, out=loads[at])
            hops[at] = self.fabric.distance(source[at], target[at]).max(axis=1, initial=0)
            if is_limited(self.fabric.slice_):
                direct[at] = reachable(self.fabric.slice_)[source[at], target[at]].all(axis=1)
        return UnitLoads(loads=loads, hops=hops, way=hops, direct=direct)

    def _exchanges(self, groups: Ints, orders: tuple[Order, ...]) -> Columns:
        """Every pair exchanges its share of the operand directly, by remote DMA."""
        source, target = _every_pair(groups.shape[1])
        sent = self._sent(groups[:, source], groups[:, target], 1 / groups.shape[1], orders)
        return sent.loads, sent.hops, sent.way, sent.direct, np.ones(len(groups), bool)

    def _walked(self, groups: Ints, orders: tuple[Order, ...]) -> Columns:
        """The compiler's own walks; groups without one are marked as not known."""
        loads = np.zeros((len(groups), len(orders), self.fabric.num_links))
        hops, way = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        known, direct = np.zeros(len(groups), bool), np.ones(len(groups), bool)
        alike: dict[tuple[float, ...], list[tuple[int, tuple[Walk, ...]]]] = {}
        for row in np.flatnonzero(may_have_own_order(self.fabric.slice_, groups)).tolist():
            found = walks(self.fabric.slice_, groups[row].tolist())
            known[row] = found is not None
            if found:
                shape = tuple(part for w in found for part in (len(w.rings), len(w.rings[0]), w.share))
                alike.setdefault(shape, []).append((row, found))
        for members in alike.values():
            rows = [row for row, _ in members]
            for index, walk in enumerate(members[0][1]):
                rings = np.array([found[index].rings for _, found in members])
                around = self._around(rings, orders)
                loads[rows] += around.loads * (walk.share / ring_share(rings.shape[-1]))
                hops[rows] = np.maximum(hops[rows], around.hops)
                way[rows] += around.way  # a little too far where only one colour starts with both cores
                direct[rows] &= around.direct
        return loads, hops, way, direct, known

    def _ring_of(self, groups: Ints) -> Columns:
        """The compiler's own rings; groups without one stay as they are and are marked as not known."""
        known: NDArray[np.bool_] = np.zeros(len(groups), bool)
        rings = groups.copy()
        for row in np.flatnonzero(may_have_own_order(self.fabric.slice_, groups)).tolist():
            found = walks(self.fabric.slice_, groups[row].tolist())
            known[row] = found is not None
            if found:
                rings[row] = found[0].rings[0]
        return rings, known


def _every_pair(size: int) -> tuple[Ints, Ints]:
    source, target = np.nonzero(~np.eye(size, dtype=bool))
    return source, target


def _chunks(count: int, pairs: int) -> list[slice]:
    step = max(1, PAIRS_AT_ONCE // max(1, pairs))
    return [slice(start, start + step) for start in range(0, count, step)]
