"""Finalists timed in turns, until one is shown to be best, or as good as any.

A lucky outlier must not win, and a device drifts: so every round times all that are left, one after the other, and
there the order is turned around from round to round; what is compared are the pairs of a round. An entrant is out as
soon as it is shown to be slower than the leader, by a one-sided Wilcoxon signed-rank test on the logarithms of the
pairs, and after some rounds as soon as the leader is shown to be slower than it by less than a margin, if at all: who
is no more than that faster cannot win anything worth having.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FIRST, MOST = 3, 12
EQUAL = 8
"""Rounds after which those leave too that are not shown to be worth more time: faster than the leader by the margin."""

P_VALUE = 0.13
"""Looked at after every round from the third on. Where five finalists are 1 % apart under 2 % of noise, the best or one
within 1 % of it wins 97 times in 100 in 25 timings, about half of what medians of fixed repeats take for as many wins
(`benchmarks/finalists.py`)."""

MARGIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What came of it.

    Attributes:
        order: entrants, fastest first: the winner, those that lasted, then those that left, the last to leave first.
        samples_s: of each entrant, one for each round that it ran in.
        failed: entrants that could not be timed.
        runs: timings made.
    """

    order: tuple[int, ...]
    samples_s: tuple[tuple[float, ...], ...]
    failed: tuple[int, ...] = ()
    runs: int = 0


@dataclass(slots=True)
class _Entrant:
    index: int
    samples: list[float] = field(default_factory=list)

    def logs(self, rounds: int) -> NDArray[np.float64]:
        logs: NDArray[np.float64] = np.log(np.asarray(self.samples[:rounds]))
        return logs


def race(
    entrants: int,
    time: Callable[[int], float | None],
    *,
    first: int = FIRST,
    equal: int = EQUAL,
    most: int = MOST,
    p_value: float = P_VALUE,
    margin: float = MARGIN,
) -> Race:
    """Times entrants in turns.

    Args:
        entrants: how many there are.
        time: returns seconds of one entrant, or None if it cannot be timed any more; then it is out.
        first: rounds before anybody leaves.
        equal: rounds after which those leave too that are not shown to be better by the margin.
        most: rounds at most.
        p_value: of the test.
        margin: relative difference that is worth nothing.
    """
    left = [_Entrant(index) for index in range(entrants)]
    everyone, gone, failed, runs = list(left), list[_Entrant](), list[_Entrant](), 0
    for number in range(most if entrants > 1 else 1):
        for entrant in left if number % 2 == 0 else left[::-1]:
            seconds = time(entrant.index)
            runs += 1
            if seconds is None:
                failed.append(entrant)
            else:
                entrant.samples.append(seconds)
        left = _ordered([entrant for entrant in left if entrant not in failed])
        if number + 1 < first or len(left) < 2:
            if not left:
                break
            continue
        leader, *others = left
        worth = margin if number + 1 >= equal else 0.0
        beaten = [entrant for entrant in others if _beaten(entrant, leader, p_value, worth)]
        gone += reversed(beaten)
        left = [entrant for entrant in left if entrant not in beaten]
        if len(left) == 1:
            break
    order = [*left, *reversed(gone), *failed]
    return Race(
        order=tuple(entrant.index for entrant in order),
        samples_s=tuple(tuple(entrant.samples) for entrant in everyone),
        failed=tuple(entrant.index for entrant in failed),
        runs=runs,
    )


def pseudomedian(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Returns the Hodges-Lehmann estimate: the median of the means of all pairs, which goes with Wilcoxon's test."""
    array = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(len(array))
    return float(np.median((array[first] + array[second]) / 2))


def significance(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Returns the one-sided p-value of values being above 0 by Wilcoxon's signed-rank test; 1 without values."""
    from scipy.stats import wilcoxon  # comes with JAX; a plan can be looked up without it

    array = np.asarray(values, dtype=np.float64)
    if not array.any():
        return 1.0
    return float(wilcoxon(array, alternative="greater").pvalue)


def _ordered(left: list[_Entrant]) -> list[_Entrant]:
    """Orders by pseudomedian after what a round's entrants share, the device's drift, is taken off each round."""
    if not left:
        return left
    rounds = min(len(entrant.samples) for entrant in left)
    logs = np.stack([entrant.logs(rounds) for entrant in left])
    apart = logs - logs.mean(axis=0)
    keys = [pseudomedian(row) for row in apart]
    return [left[at] for at in sorted(range(len(left)), key=lambda at: (keys[at], left[at].index))]


def _beaten(entrant: _Entrant, leader: _Entrant, p_value: float, margin: float) -> bool:
    rounds = min(len(entrant.samples), len(leader.samples))
    return significance(entrant.logs(rounds) - leader.logs(rounds) + math.log1p(margin)) < p_value
