"""Routing around missing links.

A transfer whose route would cross a missing link takes a shortest way around instead, the same in both directions. The
hardware's tables of such ways are not public, so that which of several shortest ways it takes is an assumption; that it
takes no longer one is the point of its resilient routing. Chips that nothing joins any more keep their old route over
the missing link, which takes infinitely long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.network.fabric import Fabric, Floats, Ints, Order
from tuner.slices.slice import Coords

SOURCES_AT_ONCE = 64
"""Bound on sources whose ways to all chips are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """Ways of some pairs of chips: the links of pair k are ``links[first[k] : first[k + 1]]``.

    `codes` are source * chips + target, ascending.
    """

    codes: Ints
    first: Ints
    links: Ints


class Detoured(Fabric):
    """The links of another fabric without some of them.

    Args:
        whole: the fabric with all links.
        missing: numbers of links that are not there, both directions of each.
    """

    def __init__(self, whole: Fabric, missing: Sequence[int]) -> None:
        super().__init__(whole.slice_)
        self._base = whole
        self.exists = whole.exists.copy()
        self.exists[list(missing)] = False
        self._target = np.full(self.num_links, -1)
        for link in np.flatnonzero(self.exists & ~self.is_core_link()).tolist():
            self._target[link] = self.slice_.device(whole.link_ends(link)[1]) // self.slice_.cores
        blocked = {order: self._blocked(order, missing) for order in self.orders}
        every = self._ways_around(np.unique(np.concatenate(list(blocked.values()))))
        self._far = every
        self._ways = {order: _taken(every, codes) for order, codes in blocked.items()}

    def link_ends(self, link: int) -> tuple[Coords, Coords]:
        """Returns the chip coordinates that a link leaves and reaches."""
        return self._base.link_ends(link)

    def distance(self, source: Ints, target: Ints) -> Ints:
        """Returns hops between device indices, around missing links."""
        hops = self._base.distance(source, target)
        codes = self._chip[source] * self._chips + self._chip[target]
        at, found = _find(self._far.codes, codes)
        if found.any():
            hops = np.where(
                found, self._far.first[np.minimum(at + 1, len(self._far.codes))] - self._far.first[at], hops
            )
        return hops

    def _blocked(self, order: Order, missing: Sequence[int]) -> Ints:
        """Returns the pairs of chips whose route in an order crosses a missing link, as ascending codes."""
        devices = np.arange(0, self.slice_.num_devices, self.slice_.cores)
        out = [np.zeros(0, np.int64)]
        for at in range(0, self._chips, SOURCES_AT_ONCE):
            sources = devices[at : at + SOURCES_AT_ONCE, None]
            crossing = np.zeros((len(sources), self._chips), bool)
            for link in missing:
                crossing |= self._base.crosses(link, order, sources, devices[None])
            source, target = np.nonzero(crossing)
            out.append((source + at) * self._chips + target)
        return np.concatenate(out)

    def _ways_around(self, codes: Ints) -> _Ways:
        """Returns the shortest ways for pairs of chips; pairs that are cut off are left out."""
        first, second = np.divmod(codes, self._chips)
        low, high = np.minimum(first, second), np.maximum(first, second)
        ways: dict[int, list[int]] = {}
        sources = np.unique(low)
        for at in range(0, len(sources), SOURCES_AT_ONCE):
            some = sources[at : at + SOURCES_AT_ONCE]
            last = self._last_links(some)
            chosen = np.isin(low, some)
            for source, target in set(zip(low[chosen].tolist(), high[chosen].tolist(), strict=True)):
                way = self._walk(last[int(np.searchsorted(some, source))], source, target)
                if way:
                    ways[source * self._chips + target] = way
                    ways[target * self._chips + source] = [self._opposite(link) for link in reversed(way)]
        known = sorted(ways.keys() & set(codes.tolist()))
        lengths = [len(ways[code]) for code in known]
        return _Ways(
            codes=np.array(known, np.int64),
            first=np.cumsum([0, *lengths]),
            links=np.array([link for code in known for link in ways[code]], np.int64),
        )

    def _last_links(self, sources: Ints) -> NDArray[np.int64]:
        """Returns the last link of a shortest way from each source to each chip [sources, chips]; -1 for none."""
        links = np.flatnonzero(self._target >= 0)
        planes = [links[links // self._chips == plane] for plane in range(2 * self._axes)]
        last = np.full((len(sources), self._chips), -1)
        rows = np.arange(len(sources))
        reached = np.zeros((len(sources), self._chips), bool)
        reached[rows, sources] = True
        frontier = reached.copy()
        while frontier.any():
            after = np.zeros_like(reached)
            for plane in planes:
                target = self._target[plane]
                new = np.zeros_like(reached)
                new[:, target] = frontier[:, plane % self._chips]
                new &= ~reached & ~after
                row, chip = np.nonzero(new)
                into = np.full(self._chips, -1)
                into[target] = plane
                last[row, chip] = into[chip]
                after |= new
            reached |= after
            frontier = after
        return last

    def _walk(self, last: NDArray[np.int64], source: int, target: int) -> list[int]:
        way: list[int] = []
        at = target
        while at != source:
            link = int(last[at])
            if link < 0:
                return []
            way.append(link)
            at = link % self._chips
        return way[::-1]

    def _opposite(self, link: int) -> int:
        return (link // self._chips ^ 1) * self._chips + int(self._target[link])

    def _routed(self, source: Ints, target: Ints, order: Order) -> Floats:
        ways = self._ways[order]
        at, around = _find(ways.codes, self._chip[source] * self._chips + self._chip[target])
        out = self._base._routed(source, np.where(around, source, target), order)
        if around.any():
            row, taken = np.nonzero(around)[0], at[around]
            counts = ways.first[taken + 1] - ways.first[taken]
            inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            links = ways.links[np.repeat(ways.first[taken], counts) + inside]
            crossed = np.bincount(np.repeat(row, counts) * self.num_links + links, minlength=out.size)
            out += crossed.reshape(out.shape)
        return out


def _find(ascending: Ints, codes: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Returns where codes stand in an ascending list, and whether they do."""
    if not len(ascending):
        return np.zeros_like(codes), np.zeros(codes.shape, bool)
    at = np.minimum(np.searchsorted(ascending, codes), len(ascending) - 1)
    return at, np.asarray(ascending[at] == codes)


def _taken(ways: _Ways, codes: Ints) -> _Ways:
    """Returns the ways of some of the pairs."""
    at, found = _find(ways.codes, codes)
    at = at[found]
    parts = [ways.links[ways.first[k] : ways.first[k + 1]] for k in at.tolist()]
    return _Ways(
        codes=codes[found],
        first=np.cumsum([0, *map(len, parts)]),
        links=np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64),
    )
