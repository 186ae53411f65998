"""From collectives and placements to the load of every directed link, for many placements at once.

A pattern is what does not depend on bytes: which devices talk to which. Its unit load is the load of each link when
every device brings one byte, with all groups at once. Where the load of a group depends only on which devices are in
it, it is computed once for each set of devices and looked up afterwards; a set is recognised by the sum of random
64-bit numbers of its members, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tuner.errors import InvalidValue
from tuner.network.fabric import Fabric, Floats, Ints, Order
from tuner.network.rings import ring_share, walks
from tuner.program.program import Collective, CollectiveKind

PAIRS_AT_ONCE = 1 << 20
"""Bound on routed pairs in memory at once."""

CACHED_FLOATS = 1 << 25
"""Bound on remembered loads of one pattern (256 MiB)."""


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
    """Who talks to whom in one collective, whatever its size.

    Attributes:
        flow: how.
        members: groups of logical ids for rings and exchanges; (source, target) for permutes.
    """

    flow: Flow
    members: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len({len(row) for row in self.members}) != 1:
            raise InvalidValue(
                f"{self.flow} over groups of sizes {[len(row) for row in self.members]}; one size is legal"
            )

    @classmethod
    def of(cls, collective: Collective) -> Pattern:
        """Returns the pattern of a collective over chip-to-chip links. Raises InvalidValue for other networks."""
        if collective.kind not in FLOWS:
            raise InvalidValue(f"{collective.kind} {collective.name!r} does not use the links of a slice")
        flow = FLOWS[collective.kind]
        members = collective.pairs if flow is Flow.PERMUTE else collective.groups
        if flow is not Flow.RING or all(len(group) <= 2 for group in members):
            # A set of groups is all that matters here, so programs that list it in another order share the work.
            members = tuple(sorted(tuple(sorted(m)) if flow is not Flow.PERMUTE else tuple(m) for m in members))
        return cls(flow=flow, members=tuple(tuple(row) for row in members))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLoads:
    """What one byte on every device costs the network, for n placements.

    Attributes:
        loads: bytes on each link [n, orders, num_links].
        hops: longest distance of a transfer [n].
    """

    loads: Floats
    hops: Ints


class Loader:
    """Computes unit loads on one fabric and remembers them by sets of devices."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._sets: dict[tuple[Flow, int, tuple[Order, ...]], _SetLoads] = {}
        self._names = np.random.default_rng(0).integers(1, 1 << 63, fabric.slice_.num_devices, np.uint64)

    def unit_loads(self, pattern: Pattern, placements: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        """Returns the unit loads of a pattern.

        Args:
            pattern: over logical ids below the number of devices.
            placements: device index of each logical id [n, devices].
            orders: orders of axes to route in.
        """
        devices = placements[:, np.asarray(pattern.members)]
        if pattern.flow is Flow.PERMUTE:
            return self._listed(devices[..., 0], devices[..., 1], 1.0, orders)
        size = devices.shape[-1]
        key = (pattern.flow, size, orders)
        if key not in self._sets:
            compute = _ring_loads if pattern.flow is Flow.RING else _exchange_loads
            self._sets[key] = _SetLoads(self.fabric, self._names, compute, orders)
        table = self._sets[key]
        rows = table.rows(devices)
        known = table.known[rows].all(axis=1)
        loads = np.empty((len(devices), len(orders), self.fabric.num_links))
        hops = table.hops[rows].max(axis=1)
        for at in _chunks(len(devices), rows.shape[1] * loads[0].size):
            loads[at] = table.loads[rows[at]].sum(axis=1)
        if not known.all():
            # One group that the compiler does not order itself: it walks every group of the operation as listed.
            source = devices[~known]
            target = np.roll(source, -1, axis=-1)
            both = (_flat(source, target), _flat(target, source))
            listed = self._listed(*both, ring_share(size), orders)
            loads[~known], hops[~known] = listed.loads, listed.hops
        return UnitLoads(loads=loads, hops=hops)

    def _listed(self, source: Ints, target: Ints, share: float, orders: tuple[Order, ...]) -> UnitLoads:
        loads = np.empty((len(source), len(orders), self.fabric.num_links))
        hops = np.empty(len(source), np.int64)
        for at in _chunks(len(source), source.shape[1]):
            loads[at] = share * self.fabric.loads(source[at], target[at], orders)
            hops[at] = self.fabric.distance(source[at], target[at]).max(axis=1)
        return UnitLoads(loads=loads, hops=hops)


def _flat(first: Ints, second: Ints) -> Ints:
    count = len(first)
    return np.concatenate([first.reshape(count, -1), second.reshape(count, -1)], axis=1)


def _chunks(count: int, cost: int) -> list[slice]:
    step = max(1, PAIRS_AT_ONCE // max(1, cost))
    return [slice(start, start + step) for start in range(0, count, step)]


SetCompute = Callable[[Fabric, Ints, tuple[Order, ...]], tuple[Floats, Ints, NDArray[np.bool_]]]


class _SetLoads:
    """Loads of groups of one size, by the set of their members."""

    def __init__(
        self, fabric: Fabric, names: NDArray[np.uint64], compute: SetCompute, orders: tuple[Order, ...]
    ) -> None:
        self._fabric, self._names, self._compute, self._orders = fabric, names, compute, orders
        self._width = len(orders) * fabric.num_links
        self.loads: Floats
        self.hops: Ints
        self.known: NDArray[np.bool_]
        self._clear()

    def _clear(self) -> None:
        self._index: dict[int, int] = {}
        self._reserve(64)

    def _reserve(self, capacity: int) -> None:
        kept = len(self._index)
        loads = np.empty((capacity, len(self._orders), self._fabric.num_links))
        hops, known = np.empty(capacity, np.int64), np.empty(capacity, bool)
        if kept:
            loads[:kept], hops[:kept], known[:kept] = self.loads[:kept], self.hops[:kept], self.known[:kept]
        self.loads, self.hops, self.known = loads, hops, known

    def rows(self, devices: Ints) -> Ints:
        """Returns the row of each group [n, groups] of devices [n, groups, size], computing those that are new."""
        keys = self._names[devices].sum(axis=-1, dtype=np.uint64)
        distinct, first, inverse = np.unique(keys.ravel(), return_index=True, return_inverse=True)
        if (len(self._index) + len(distinct)) * self._width > CACHED_FLOATS:
            self._clear()
        fresh = [i for i, key in enumerate(distinct.tolist()) if key not in self._index]
        if fresh:
            groups = devices.reshape(-1, devices.shape[-1])[first[fresh]]
            start, end = len(self._index), len(self._index) + len(fresh)
            if end > len(self.loads):
                self._reserve(2 * end)
            added = self._compute(self._fabric, groups, self._orders)
            self.loads[start:end], self.hops[start:end], self.known[start:end] = added
            self._index.update({int(distinct[i]): start + k for k, i in enumerate(fresh)})
        found: Ints = np.array([self._index[key] for key in distinct.tolist()], np.int64)
        return found[inverse].reshape(keys.shape)


def _exchange_loads(fabric: Fabric, groups: Ints, orders: tuple[Order, ...]) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Every pair exchanges its share of the operand directly, by remote DMA."""
    size = groups.shape[1]
    source, target = np.nonzero(~np.eye(size, dtype=bool))
    loads = np.zeros((len(groups), len(orders), fabric.num_links))
    hops = np.zeros(len(groups), np.int64)
    if size > 1:
        for at in _chunks(len(groups), len(source)):
            loads[at] = fabric.loads(groups[at][:, source], groups[at][:, target], orders) / size
            hops[at] = fabric.distance(groups[at][:, source], groups[at][:, target]).max(axis=1)
    return loads, hops, np.ones(len(groups), bool)


def _ring_loads(fabric: Fabric, groups: Ints, orders: tuple[Order, ...]) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """The compiler's own walks; groups without one are marked as not known."""
    loads = np.zeros((len(groups), len(orders), fabric.num_links))
    hops = np.zeros(len(groups), np.int64)
    found = [walks(fabric.slice_, group) for group in groups.tolist()]
    shapes = {tuple((len(walk.rings), len(walk.rings[0]), walk.share) for walk in walk_ or ()) for walk_ in found}
    for shape in sorted(shapes):
        rows = [
            i
            for i, walk_ in enumerate(found)
            if tuple((len(walk.rings), len(walk.rings[0]), walk.share) for walk in walk_ or ()) == shape
        ]
        for index, (_, _, share) in enumerate(shape):
            source = np.array([(found[i] or ())[index].rings for i in rows])
            target = np.roll(source, -1, axis=-1)
            a, b = _flat(source, target), _flat(target, source)
            for at in _chunks(len(rows), a.shape[1]):
                loads[rows[at]] += share * fabric.loads(a[at], b[at], orders)
                hops[rows[at]] = np.maximum(hops[rows[at]], fabric.distance(a[at], b[at]).max(axis=1))
    return loads, hops, np.array([walk_ is not None for walk_ in found], bool)
