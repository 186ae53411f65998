"""Routing over a twisted torus.

Routes are shortest: the difference of two chips is taken to its nearest representatives in the lattice behind the torus
(see `tuner.slices.twist`), of which there may be several, as on the half of a ring; each takes an equal share. A route
covers one axis after another as on any slice, and every axis is a ring of 2k chips. Tables of routes that libtpu holds
for single shapes are not public, so that a shortest route is an assumption.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tuner.network.fabric import Fabric, Floats, Ints, Order
from tuner.slices.links import chip_coords
from tuner.slices.slice import Coords, Slice
from tuner.slices.twist import chip_index, onto_grid, rings_along


class TwistedFabric(Fabric):
    """Directed links of a twisted torus. Numbers of links are those of `Fabric`."""

    def __init__(self, slice_: Slice) -> None:
        super().__init__(slice_)
        self._coords: Ints = chip_coords(slice_).astype(np.int64)
        self._length = max(slice_.shape)
        self._rings = [rings_along(slice_, axis) for axis in range(3)]
        self._place = [np.argsort(rings, axis=None) for rings in self._rings]
        self._hops, self._nearest = _nearest(slice_)
        self._whole = math.lcm(*np.unique((self._nearest[..., 0] < _NONE).sum(axis=1)).tolist())

    def link_ends(self, link: int) -> tuple[Coords, Coords]:
        """Returns the chip coordinates that a link leaves and reaches."""
        plane, chip = divmod(link, self._chips)
        axis, back = divmod(plane, 2)
        start = self.slice_.coords(chip)
        end = list(start)
        end[axis] += -1 if back else 1
        x, y, z = onto_grid(self.slice_, np.array(end, np.int32)).tolist()
        return start, (x, y, z)

    def distance(self, source: Ints, target: Ints) -> Ints:
        """Returns hops between device indices."""
        return self._hops[self._difference(source, target)]

    def crosses(self, link: int, order: Order, source: Ints, target: Ints) -> NDArray[np.bool_]:
        """Returns whether a route crosses a link; see `Fabric.crosses`."""
        start, end = (np.array(self.slice_.device(place)) for place in self.link_ends(link))
        past = self.distance(source, start) + 1 + self.distance(end, target)
        on = np.array(past == self.distance(source, target))
        source, target = np.broadcast_arrays(source, target)
        maybe = np.flatnonzero(on)
        for at in range(0, len(maybe), _ROUTES_AT_ONCE):
            some = maybe[at : at + _ROUTES_AT_ONCE]
            loads = self._routed(source.ravel()[some][:, None], target.ravel()[some][:, None], order)
            on.ravel()[some] = loads[:, link] > 0
        return on

    def _difference(self, source: Ints, target: Ints) -> Ints:
        apart = (self._coords[target] - self._coords[source]).astype(np.int32)
        return chip_index(self.slice_, onto_grid(self.slice_, apart))

    def _routed(self, source: Ints, target: Ints, order: Order) -> Floats:
        count = len(source)
        row, start = np.nonzero(np.ones_like(source))[0], source.ravel()
        steps = self._nearest[self._difference(source, target).ravel()]
        known = steps[..., 0] < _NONE  # [pairs, representatives]
        share = self._whole / known.sum(axis=1)  # whole numbers, which add up exactly
        pair, which = np.nonzero(known)
        row, chip, steps, share = row[pair], start[pair], steps[pair, which], share[pair]
        out = np.zeros((count, self.num_links))
        for axis in order:
            rings, length = self._rings[axis], self._length
            first, at = np.divmod(self._place[axis][chip], length)
            after = at + steps[:, axis]
            for back, moves in ((0, steps[:, axis] > 0), (1, steps[:, axis] < 0)):
                line = (row * len(rings) + first)[moves] * 2 * length
                # Positions on a ring unrolled twice, ascending in the direction of travel.
                enters = (length - 1 - at if back else at)[moves]
                leaves = enters + np.abs(steps[moves, axis])
                change = np.bincount(line + enters, share[moves], count * rings.size * 2)
                # A route never leaves the second round, as it is at most one round long.
                change -= np.bincount(line + leaves, share[moves], count * rings.size * 2)
                load = np.cumsum(change.reshape(count, -1, 2 * length), axis=-1)
                load = load[..., :length] + load[..., length:]
                load = load[..., ::-1] if back else load
                plane = out[:, (2 * axis + back) * self._chips : (2 * axis + back + 1) * self._chips]
                plane[:, rings.ravel()] = load.reshape(count, -1)
            chip = rings[first, after % length]
        return out / self._whole


_ROUTES_AT_ONCE = 1 << 10

_NONE = 1 << 20
"""Stands for no further representative."""


def _nearest(slice_: Slice) -> tuple[Ints, NDArray[np.int64]]:
    """Returns hops [chips] and steps along each axis [chips, representatives, 3] to each chip from the first one."""
    reach = range(-max(slice_.shape), max(slice_.shape) + 1)
    steps = np.array(list(product(reach, repeat=3)), np.int32)
    chip, hops = chip_index(slice_, onto_grid(slice_, steps)), np.abs(steps).sum(axis=1)
    least = np.full(slice_.num_chips, _NONE)
    np.minimum.at(least, chip, hops)
    shortest = np.flatnonzero(hops == least[chip])
    shortest = shortest[np.argsort(chip[shortest], kind="stable")]
    chips, first, counts = np.unique(chip[shortest], return_index=True, return_counts=True)
    table = np.full((slice_.num_chips, counts.max(), 3), _NONE, np.int64)
    number = np.arange(len(shortest)) - np.repeat(first, counts)
    table[np.repeat(chips, counts), number] = steps[shortest]
    return least.astype(np.int64), table
