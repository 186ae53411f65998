"""Lower bounds on the step time of a screened candidate, whatever its placement, schedule and kernel blocks.

Admissible: no schedule of the program, on any placement, is predicted faster, so a candidate whose bound is above the
best prediction is refused without a compile. The bound is the largest of three times that cannot be beaten one by one,
never their sum, because they may run at the same time:

- compute: operations of products and attention, block padding left out, at the peak of the matrix unit;
- memory: `Screened.least_bytes` at the documented HBM bandwidth;
- network: bytes that must cross the links of a chip, or of all chips together, at the rate of a link.

The rate of a link is the calibration's at its best, so the bound holds for the model's predictions under that record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.ports import Screened
from tuner.program.program import Collective, CollectiveKind, Compute, Program
from tuner.slices.links import links
from tuner.slices.slice import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """No step of a candidate can be faster than `step_s`, the largest of the three.

    Attributes:
        compute_s: matrix products and attention at peak.
        memory_s: least HBM traffic at the documented bandwidth.
        network_s: least traffic over the links at their best rate.
    """

    compute_s: float
    memory_s: float
    network_s: float

    @property
    def step_s(self) -> float:
        """The bound in seconds."""
        return max(self.compute_s, self.memory_s, self.network_s)

    @property
    def which(self) -> str:
        """What binds: ``compute``, ``memory`` or ``network``."""
        return max(("compute", "memory", "network"), key=lambda part: float(getattr(self, f"{part}_s")))


def lower_bound(screened: Screened, slice_: Slice, calibration: Calibration) -> Bound:
    """Returns the lower bound of a candidate on a slice."""
    generation = slice_.generation
    flops = sum(node.flops * times for node, times in screened.program.walk() if isinstance(node, Compute))
    return Bound(
        compute_s=flops / generation.peak_flops,
        memory_s=screened.least_bytes / generation.hbm_bytes_per_s,
        network_s=network_bound_s(screened.program, slice_, calibration),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes that a collective moves over the links of chips, at the least.

    Attributes:
        enter: into every chip.
        leave: out of every chip.
        mean: into a chip in the mean over all chips; a reduction has its bytes to pass on, wherever they are added.
    """

    enter: float
    leave: float
    mean: float


def network_bound_s(program: Program, slice_: Slice, calibration: Calibration) -> float:
    """Returns the least time in which all collectives of a program can cross the links of a slice.

    Two cuts that every placement has: around the chip with the fewest links (some device must sit there), and around
    every chip at once (each byte that is received crosses a link at least). Latency is left out.
    """
    fewest, total = _links(slice_)
    if not fewest:
        return 0.0
    enter = leave = mean = 0.0
    for node, times in program.walk():
        if isinstance(node, Collective):
            need = least(node, devices=slice_.num_devices, cores=slice_.cores)
            enter += times * need.enter
            leave += times * need.leave
            mean += times * need.mean
    rate = calibration.link_bytes_per_s
    return max(enter / (fewest * rate), leave / (fewest * rate), mean * slice_.num_chips / (total * rate))


def least(collective: Collective, *, devices: int, cores: int) -> Need:
    """Returns what a collective needs on chips of `cores` devices, members of one group sharing chips where they can.

    With g members of which m share a chip, of a whole S: an all-gather brings (g-m)/g S into each chip and lets 1/g of
    it out; a reduce-scatter is its mirror image; an all-to-all brings and lets out (g-m)/g S; an all-reduce brings S
    (the sum of the others) and lets S out (its own part), and in the mean over chips twice (g-m)/g S, because sums over
    a tree have g/m - 1 edges each way.
    """
    if collective.kind is CollectiveKind.DCN:
        return Need(enter=0.0, leave=0.0, mean=0.0)
    if collective.kind is CollectiveKind.COLLECTIVE_PERMUTE:
        return _permute(collective, devices, cores)
    size = min(map(len, collective.groups))
    share = max(0, size - cores) / size
    whole = float(max(collective.operand_bytes, collective.result_bytes))
    crosses = share > 0
    covered = sum(map(len, collective.groups))
    mean = share * whole * covered / devices
    # A device outside of every group may sit at the chip with the fewest links.
    each = float(covered == devices)
    match collective.kind:
        case CollectiveKind.ALL_REDUCE:
            return Need(enter=each * crosses * whole, leave=each * crosses * whole, mean=2 * mean)
        case CollectiveKind.REDUCE_SCATTER:
            return Need(enter=each * crosses * whole / size, leave=each * share * whole, mean=mean)
        case CollectiveKind.ALL_GATHER:
            return Need(enter=each * share * whole, leave=each * crosses * whole / size, mean=mean)
        case _:
            return Need(enter=each * share * whole, leave=each * share * whole, mean=mean)


def _permute(collective: Collective, devices: int, cores: int) -> Need:
    if cores > 1:
        return Need(enter=0.0, leave=0.0, mean=0.0)
    moving = [(source, target) for source, target in collective.pairs if source != target]
    size = float(collective.operand_bytes)
    return Need(
        enter=size * (len({target for _, target in moving}) == devices),
        leave=size * (len({source for source, _ in moving}) == devices),
        mean=size * len(moving) / devices,
    )


@lru_cache(maxsize=64)
def _links(slice_: Slice) -> tuple[int, int]:
    """Returns the links into the chip that has the fewest, and into all chips."""
    found = links(slice_)
    counts = np.bincount(found.target, minlength=slice_.num_chips)
    return int(counts.min()), int(counts.sum())
