"""The links of a slice and how traffic is routed over them.

Routes are shortest and dimension-ordered: a transfer first covers its distance along one axis, then along the next.
Which axis the hardware takes first is not public, so loads are computed for every order and the worst one counts; this
also makes placements that are mirror images cost the same. On a ring, a transfer over exactly half of it goes half each
way.

A route is never walked. A transfer adds its bytes where it enters a line of links and takes them away where it leaves;
a running sum along the line gives the load. The work is linear in the number of source-destination pairs, however far
apart they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from tuner.slices.slice import Coords, Slice

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Order = tuple[int, ...]

TABLE_DEVICES = 32
"""Up to so many devices, loads are a matrix product with the routes of all pairs; that is quickest there."""


class Fabric:
    """Directed links of a slice, numbered, and routing over them.

    Link ``(2 * axis + back) * num_chips + chip`` leaves `chip` along `axis` towards higher (``back`` 0) or lower
    (``back`` 1) coordinates. Two more planes, from the first core to the second and back, follow where a chip holds two
    devices. Numbers of links that do not exist are left unused.

    Attributes:
        slice_: the slice.
        num_links: numbers in use, existing or not.
        exists: bool [num_links].
        orders: orders of axes that routing may take.
        mirrored_orders: a subset, enough for traffic that flows equally in both directions: an order and its reverse
            then load a link and its opposite the same.
    """

    def __init__(self, slice_: Slice) -> None:
        self.slice_ = slice_
        self._chips = slice_.num_chips
        self._axes = len(slice_.shape)
        self._wrap = tuple(wrap and size > 2 for wrap, size in zip(slice_.wrap, slice_.shape, strict=True))
        self._strides = tuple(math.prod(slice_.shape[:axis]) for axis in range(self._axes))
        devices = np.arange(slice_.num_devices)
        self._chip: Ints = devices // slice_.cores
        self._core: Ints = devices % slice_.cores
        self._position: Ints = np.stack(
            [self._chip // stride % size for stride, size in zip(self._strides, slice_.shape, strict=True)]
        )
        self._tables: dict[tuple[Order, ...], NDArray[np.float32]] = {}
        self._core_planes = 2 if slice_.cores == 2 else 0
        self.num_links = (2 * self._axes + self._core_planes) * self._chips
        self.exists = self._existing()
        moving = [axis for axis, size in enumerate(slice_.shape) if size > 1]
        self.orders: tuple[Order, ...] = tuple(permutations(moving)) or ((),)
        self.mirrored_orders: tuple[Order, ...] = tuple(order for order in self.orders if order <= order[::-1])

    def _existing(self) -> NDArray[np.bool_]:
        planes = []
        chips = np.arange(self._chips)
        for size, stride, wrap in zip(self.slice_.shape, self._strides, self._wrap, strict=True):
            position = chips // stride % size
            planes += [np.full(self._chips, wrap) | (position < size - 1), np.full(self._chips, wrap) | (position > 0)]
        planes += [np.ones(self._chips, bool)] * self._core_planes
        return np.concatenate(planes)

    def link_ends(self, link: int) -> tuple[Coords, Coords]:
        """Returns the chip coordinates that a link leaves and reaches; the same twice for a core-to-core link."""
        plane, chip = divmod(link, self._chips)
        start = self.slice_.coords(chip * self.slice_.cores)
        if plane >= 2 * self._axes:
            return start, start
        axis, back = divmod(plane, 2)
        end = list(start)
        end[axis] = (end[axis] + (-1 if back else 1)) % self.slice_.shape[axis]
        return start, tuple(end)

    def link_name(self, link: int) -> str:
        """Returns for example ``0,0->1,0``, or ``0,0,0 core 0->1``."""
        start, end = self.link_ends(link)
        if start == end:
            back = link // self._chips - 2 * self._axes
            return f"{','.join(map(str, start))} core {back}->{1 - back}"
        return f"{','.join(map(str, start))}->{','.join(map(str, end))}"

    def is_core_link(self) -> NDArray[np.bool_]:
        """Returns bool [num_links]: True for links between two devices on one chip."""
        return np.arange(self.num_links) >= 2 * self._axes * self._chips

    def distance(self, source: Ints, target: Ints) -> Ints:
        """Returns hops between device indices; two cores of one chip are one hop apart."""
        hops: Ints = np.zeros(np.broadcast(source, target).shape, np.int64)
        for position, size, wrap in zip(self._position, self.slice_.shape, self._wrap, strict=True):
            apart = np.abs(position[source] - position[target])
            hops += np.minimum(apart, size - apart) if wrap else apart
        if self._core_planes:
            hops += (self._chip[source] == self._chip[target]) & (self._core[source] != self._core[target])
        return hops

    def crosses(self, link: int, order: Order, source: Ints, target: Ints) -> NDArray[np.bool_]:
        """Returns whether a route crosses a link between chips.

        Args:
            link: its number.
            order: of axes to route in.
            source: device indices.
            target: device indices that broadcast with `source`.
        """
        axis, cores = link // self._chips // 2, self.slice_.cores
        start, end = (np.array(self.slice_.device(place)) for place in self.link_ends(link))
        source, target = source // cores * cores, target // cores * cores
        past = self.distance(source, start) + 1 + self.distance(end, target)
        on = np.asarray(past == self.distance(source, target))
        turn = order.index(axis)
        for before in order[:turn]:
            on = on & (self._position[before][target] == self._position[before][start])
        for after in order[turn + 1 :]:
            on = on & (self._position[after][source] == self._position[after][start])
        return on

    def loads(self, source: Ints, target: Ints, orders: Sequence[Order]) -> Floats:
        """Returns how often each link is crossed when every pair sends one unit.

        Args:
            source: device indices [n, pairs]; each row is a case of its own.
            target: device indices [n, pairs].
            orders: orders of axes to route in.

        Returns:
            Loads [n, orders, num_links].
        """
        count, devices = len(source), self.slice_.num_devices
        if devices <= TABLE_DEVICES:
            pair = source * devices + target + np.arange(count)[:, None] * devices**2
            sent = np.bincount(pair.ravel(), minlength=count * devices**2).reshape(count, -1)
            # Counts and halves of them are exact in single precision.
            table = self._all_pairs(tuple(orders))
            return (sent.astype(np.float32) @ table).astype(np.float64).reshape(count, len(orders), -1)
        out = np.empty((count, len(orders), self.num_links))
        for index, order in enumerate(orders):
            out[:, index] = self._routed(source, target, order)
        return out

    def _all_pairs(self, orders: tuple[Order, ...]) -> NDArray[np.float32]:
        """Returns the links on every pair's route [pairs, orders x num_links]."""
        if orders not in self._tables:
            source, target = np.divmod(np.arange(self.slice_.num_devices**2), self.slice_.num_devices)
            routes = [self._routed(source[:, None], target[:, None], order) for order in orders]
            self._tables[orders] = np.concatenate(routes, axis=1).astype(np.float32)
        return self._tables[orders]

    def _routed(self, source: Ints, target: Ints, order: Order) -> Floats:
        count = len(source)
        rows = np.arange(count)[:, None] * self.num_links
        change = np.zeros(count * self.num_links)
        chip = self._chip[source]
        for axis in order:
            start, end = self._position[axis][source], self._position[axis][target]
            after = chip + (end - start) * self._strides[axis]
            if self._wrap[axis]:
                self._around(change, axis, rows, chip, after, start, end)
            else:
                plane = rows + (2 * axis + (end < start)) * self._chips
                change += np.bincount((plane + chip).ravel(), minlength=change.size)
                change -= np.bincount((plane + after).ravel(), minlength=change.size)
            chip = after
        return self._summed(change.reshape(count, self.num_links), source, target, rows)

    def _around(self, change: Floats, axis: int, rows: Ints, chip: Ints, after: Ints, start: Ints, end: Ints) -> None:
        """Adds transfers along a closed axis; those over the seam also enter at the beginning of the line."""
        size, stride = self.slice_.shape[axis], self._strides[axis]
        ahead = (end - start) % size
        for back, share in ((0, 1.0), (1, 1.0), (0, -0.5), (1, 0.5)):
            if share == 1.0:
                chosen = np.flatnonzero((2 * ahead > size) if back else (ahead > 0) & (2 * ahead <= size))
            else:  # exactly half way around: half of it goes the other way
                chosen = np.flatnonzero(2 * ahead == size)
            if not len(chosen):
                continue
            leaves, reaches = start.ravel()[chosen], end.ravel()[chosen]
            plane = (rows + (2 * axis + back) * self._chips + np.zeros_like(chip)).ravel()[chosen]
            at = plane + chip.ravel()[chosen]
            over = (reaches > leaves) if back else (reaches < leaves)
            first = at + ((size - 1 if back else 0) - leaves) * stride
            change += share * np.bincount(at, minlength=change.size)
            change -= share * np.bincount(plane + after.ravel()[chosen], minlength=change.size)
            change += share * np.bincount(first[over], minlength=change.size)

    def _summed(self, change: Floats, source: Ints, target: Ints, rows: Ints) -> Floats:
        count = len(change)
        out = np.empty_like(change)
        grid = (count, *reversed(self.slice_.shape))
        for plane in range(2 * self._axes):
            axis, back = divmod(plane, 2)
            along = len(grid) - 1 - axis
            part = change[:, plane * self._chips : (plane + 1) * self._chips].reshape(grid)
            part = np.flip(np.cumsum(np.flip(part, along), along), along) if back else np.cumsum(part, along)
            out[:, plane * self._chips : (plane + 1) * self._chips] = part.reshape(count, self._chips)
        if self._core_planes:
            first = 2 * self._axes * self._chips
            on_chip = (self._chip[source] == self._chip[target]) & (self._core[source] != self._core[target])
            link = rows + first + self._core[source] * self._chips + self._chip[source]
            crossed = np.bincount(link[on_chip], minlength=count * self.num_links).reshape(count, self.num_links)
            out[:, first:] = crossed[:, first:]
        return out
