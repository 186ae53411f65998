"""The time of collectives on a slice, for one placement with every figure or for many with only the time.

time = launch floor + longest hop + the larger of (the other steps' hops, bytes on the busiest link / its rate)

The steps of a ring are pipelined: a step takes the longer of one hop's latency and its chunk's transfer (JAX scaling
book, "Sharded matrices": T_hop = max(1 us, V / (N W))), and only the first one's latency is always exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.errors import InvalidValue
from tuner.network.detours import Detoured
from tuner.network.fabric import Fabric, Floats, Ints, Order
from tuner.network.fabrics import fabric
from tuner.network.loads import Loader, UnitLoads
from tuner.network.patterns import Flow, Pattern
from tuner.network.reach import SCHEDULE_LOSS, STEPS_OF_HOP, is_limited
from tuner.network.regimes import regime
from tuner.program.program import Collective, CollectiveKind
from tuner.slices.slice import Coords, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """A link that does not run at its full rate, in both directions.

    Attributes:
        ends: chip coordinates of its two ends.
        rate: share of the full rate that is left; 0 means that the link is missing: traffic goes around it where it
            can, and takes infinitely long where it cannot.
    """

    ends: tuple[Coords, Coords]
    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InvalidValue(f"link {self.ends} has {self.rate} of its rate left; 0 to 1 is legal")

    def __str__(self) -> str:
        """As `parse` reads it, the ends in order: two ways to say the same are one text."""
        first, second = (",".join(map(str, end)) for end in sorted(self.ends))
        return f"{first}:{second}={self.rate:g}"

    @classmethod
    def parse(cls, text: str) -> Degraded:
        """Reads ``0,0:1,0=0.5``.

        Raises InvalidValue with an example if the text is something else, and with the reason if it is a chip: a slice
        must be whole, because programs are compiled for all of its chips.
        """
        try:
            ends, rate = text.split("=")
            if ":" not in ends:
                chip, left = ",".join(str(int(part)) for part in ends.split(",")), float(rate)
                raise InvalidValue(
                    f"chip {chip} with {left} of its rate: a slice must be whole, as programs run on all of its chips; "
                    "tune for a smaller slice, or state single links (0,0:1,0=0.5)"
                )
            first, second = (tuple(int(part) for part in end.split(",")) for end in ends.split(":"))
            return cls(ends=(first, second), rate=float(rate))
        except InvalidValue:
            raise
        except ValueError:
            raise InvalidValue(
                f"link {text!r} is not like 0,0:1,0=0.5 (one end : other end = share of the rate)"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """One collective under one placement, alone on the network.

    Attributes:
        time_s: from launch to end.
        latency_s: the part that does not depend on bytes.
        busiest_link: number of the link that decides; -1 if nothing is sent.
        busiest_bytes: what it carries.
        loads: bytes on each link [num_links], in the order of axes that is worst.
    """

    time_s: float
    latency_s: float
    busiest_link: int
    busiest_bytes: float
    loads: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What one collective asks of the network under n placements.

    Attributes:
        fixed_s: launch floor and first hop [n, 1]; 0 where nothing is sent.
        steps_s: hops of the other steps [n, 1].
        alone_s: time with the network to itself [n, orders].
        busy_s: seconds that each link is busy [n, orders, num_links]; None if nobody asked.
    """

    fixed_s: Floats
    steps_s: Floats
    alone_s: Floats
    busy_s: Floats | None = None


class Network:
    """A slice's links with their rates.

    Args:
        slice_: the slice.
        calibration: constants of its generation.
        degraded: links that run slower than the others.
    """

    def __init__(self, slice_: Slice, calibration: Calibration, degraded: Sequence[Degraded] = ()) -> None:
        if calibration.generation != slice_.generation_name:
            raise InvalidValue(f"calibration of {calibration.generation} does not fit {slice_.name}")
        self.slice_ = slice_
        self.degraded = tuple(degraded)
        self.fabric: Fabric = fabric(slice_)
        self._slow_links = self._slowed()
        missing = [link for link, share in self._slow_links if share == 0]
        if missing and not is_limited(slice_):  # limited routing has one route between two chips, or none
            self.fabric = Detoured(self.fabric, missing)
        self._loader = Loader(self.fabric)
        self._calibrate(calibration)

    def recalibrated(self, calibration: Calibration) -> Network:
        """Returns the same links under other constants; what was found out about loads is shared."""
        again = copy(self)
        again._calibrate(calibration)
        return again

    def _calibrate(self, calibration: Calibration) -> None:
        self.calibration = calibration
        rate = np.full(self.fabric.num_links, calibration.sustained_link_bytes_per_s)
        rate[self.fabric.is_core_link()] = calibration.core_link_bytes_per_s or np.inf
        for link, share in self._slow_links:
            rate[link] *= share
        with np.errstate(divide="ignore"):
            self.seconds_per_byte: Floats = 1 / rate

    def _slowed(self) -> list[tuple[int, float]]:
        ends = {frozenset(d.ends): d.rate for d in self.degraded}
        out, seen = [], set()
        for link in np.flatnonzero(self.fabric.exists).tolist():
            pair = frozenset(self.fabric.link_ends(link))
            if pair in ends:
                out.append((link, ends[pair]))
                seen.add(pair)
        for pair in ends.keys() - seen:
            raise InvalidValue(f"{self.slice_.name} has no link between {sorted(pair)}; neighbours differ by one hop")
        return out

    def unit_loads(self, pattern: Pattern, placements: Ints, orders: tuple[Order, ...]) -> UnitLoads:
        """Returns the load of each link when every device brings one byte; see `Loader.unit_loads`."""
        return self._loader.unit_loads(pattern, placements, orders)

    def orders(self, pattern: Pattern) -> tuple[Order, ...]:
        """Returns the orders of axes that must be looked at for a pattern to find the worst one."""
        return self.fabric.orders if pattern.flow is Flow.PERMUTE else self.fabric.mirrored_orders

    def busy(self, pattern: Pattern, unit: UnitLoads) -> Floats:
        """Returns seconds that each link is busy per byte of operand [n, orders, num_links]; infinite if missing."""
        with np.errstate(invalid="ignore"):
            busy: Floats = np.where(unit.loads > 0, unit.loads * self.seconds_per_byte, 0.0)
        kept = self.calibration.shared_link_efficiency
        if kept < 1 and pattern.flow is not Flow.RING:
            one = 1.0 if pattern.flow is Flow.PERMUTE else 1 / len(pattern.members[0])
            busy = np.where(unit.loads > one * (1 + 1e-9), busy / kept, busy)
        return busy

    def worst(self, pattern: Pattern, unit: UnitLoads, busy: Floats) -> Floats:
        """Returns the seconds per byte of operand that a pattern takes in each order [n, orders].

        The busiest link decides. Where routing is limited, an exchange or permute without direct routes takes the
        length of its store-and-forward schedule, and a ring without them does not compile, which is infinite.
        """
        worst: Floats = busy.max(axis=2)
        if unit.direct.all():
            return worst
        if pattern.flow is Flow.RING:
            relayed: Floats = np.full_like(worst, np.inf)
        else:
            parts = len(pattern.members[0]) if pattern.flow is Flow.EXCHANGE else 1
            step = 1 / (parts * self.calibration.sustained_link_bytes_per_s)
            relayed = np.maximum(STEPS_OF_HOP * unit.hops[:, None] * step, SCHEDULE_LOSS * worst)
        return np.where(unit.direct[:, None], worst, relayed)

    def transfer(self, collective: Collective, unit: UnitLoads, worst: Floats, busy: Floats | None = None) -> Transfer:
        """Returns what a collective asks of the network.

        Args:
            collective: over links of the slice.
            unit: unit loads of its pattern.
            worst: what `worst` gave for its pattern [n, orders].
            busy: its pattern's `busy`, if the links are needed one by one.
        """
        run = regime(collective)
        hops, way = unit.hops[:, None], unit.way[:, None]
        first_s = self.calibration.launch_floor_s(collective.kind) + hops * self.calibration.hop_s
        fixed_s: Floats = np.where(hops > 0, first_s, 0.0)
        fixed_s = np.where(np.isinf(worst).all(axis=1, keepdims=True), np.inf, fixed_s)
        steps_s: Floats = np.maximum(run.rounds * way - hops, 0) * self.calibration.hop_s
        return Transfer(
            fixed_s=fixed_s,
            steps_s=steps_s,
            alone_s=fixed_s + np.maximum(steps_s, run.operand_bytes * worst),
            busy_s=None if busy is None else run.operand_bytes * busy,
        )

    def between_slices_s(self, collective: Collective) -> float:
        """Returns the time of a transfer over the data-centre network, which does not use the links of the slice."""
        return max(self.calibration.dcn_launch_s, collective.operand_bytes / self.calibration.dcn_bytes_per_s)

    def cost(self, collective: Collective, devices: Sequence[int]) -> CollectiveCost:
        """Returns the cost of a collective alone on the network.

        Args:
            collective: any kind; between slices it costs bytes over the data-centre rate, and no links.
            devices: device index of each logical id.
        """
        if collective.kind is CollectiveKind.DCN:
            time_s = self.between_slices_s(collective)
            return CollectiveCost(
                time_s=time_s,
                latency_s=min(time_s, self.calibration.dcn_launch_s),
                busiest_link=-1,
                busiest_bytes=0.0,
                loads=np.zeros(self.fabric.num_links),
            )
        pattern = Pattern.of(collective)
        unit = self.unit_loads(pattern, np.asarray([devices]), self.orders(pattern))
        busy = self.busy(pattern, unit)
        transfer = self.transfer(collective, unit, self.worst(pattern, unit, busy))
        order, link = (int(i) for i in np.unravel_index(busy[0].argmax(), busy[0].shape))
        loads = regime(collective).operand_bytes * unit.loads[0, order]
        sends = bool(loads.any())
        return CollectiveCost(
            time_s=float(transfer.alone_s[0].max()),
            latency_s=float(transfer.fixed_s[0, 0] + transfer.steps_s[0, 0]),
            busiest_link=link if sends else -1,
            busiest_bytes=float(loads[link]) if sends else 0.0,
            loads=loads,
        )
