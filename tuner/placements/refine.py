"""Placements beyond the structured ones: exchanges of pairs of devices, and every bijection where there are few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from tuner.network.fabric import Floats, Ints
from tuner.slices.slice import Slice
from tuner.slices.symmetry import symmetries

Score = Callable[[Ints], Floats]
"""Step times [n] of placements [n, devices]."""

LEAST_GAIN = 1e-9
"""Share of the time below which a difference is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The end of a descent.

    Attributes:
        devices: the placement [devices].
        step_s: its time.
        swaps: exchanges on the way.
        scored: placements looked at.
    """

    devices: Ints
    step_s: float
    swaps: int
    scored: int


def refine(score: Score, devices: Ints, *, neighbours: int = 4096, rounds: int = 64) -> Refined:
    """Returns a placement that no single exchange of two devices improves (if all of them fit `neighbours`).

    Args:
        score: step times of placements.
        devices: where to start.
        neighbours: exchanges looked at in a round; where there are more, an evenly spread part of them.
        rounds: most exchanges made.
    """
    first, second = np.triu_indices(len(devices), 1)
    current, best = devices.copy(), float(score(devices[None])[0])
    swaps, scored = 0, 1
    for turn in range(rounds):
        stride = -(-len(first) // neighbours) if len(first) else 1
        a, b = first[turn % stride :: stride], second[turn % stride :: stride]
        if not len(a):
            break
        trials = np.repeat(current[None], len(a), axis=0)
        rows = np.arange(len(a))
        trials[rows, a], trials[rows, b] = current[b], current[a]
        times = score(trials)
        scored += len(times)
        index = int(times.argmin())
        if not times[index] < best * (1 - LEAST_GAIN):
            if stride == 1 or turn >= stride - 1:
                break
            continue
        current, best = trials[index], float(times[index])
        swaps += 1
    return Refined(devices=current, step_s=best, swaps=swaps, scored=scored)


FEW_DEVICES = 8
"""Up to so many devices all bijections are looked at: at most 8! of them."""


def every_placement(slice_: Slice, *, symmetric: bool = True) -> Ints:
    """Returns all bijections [n, devices] of a slice of at most `FEW_DEVICES`, most symmetric ones left out.

    Args:
        slice_: the slice.
        symmetric: False where links differ, so that images under the slice's symmetries are not the same.
    """
    count = slice_.num_devices
    moves = symmetries(slice_) if symmetric else np.arange(count)[None]
    first = sorted({int(moves[:, device].min()) for device in range(count)})
    rows = [(start, *rest) for start in first for rest in permutations([d for d in range(count) if d != start])]
    return np.array(rows, np.int64)
