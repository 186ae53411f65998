"""How often the best of five finalists wins, and after how many timings: raced in turns, and by fixed repeats.

Finalists are 1 % apart; noise is lognormal, 2 %, and 2 % of the timings are outliers of 1.5 times. A win is the best,
or one within 1 % of it.
"""

from __future__ import annotations

import numpy as np

from tests.tuner.search.noise import noisy
from tuner.search.race import race

APART = [1.01**rank for rank in range(5)]
TIMES = 1000


def raced(times: int = TIMES) -> tuple[float, float]:
    """Returns the share of wins and the mean number of timings."""
    wins, runs = 0, 0
    for seed in range(times):
        ranks = list(np.random.default_rng(seed).permutation(5))
        result = race(5, noisy([APART[rank] for rank in ranks], seed=seed))
        wins += ranks[result.order[0]] <= 1
        runs += result.runs
    return wins / times, runs / times


def fixed(repeats: int, times: int = TIMES) -> float:
    """Returns the share of wins by the median of so many repeats."""
    wins = 0
    for seed in range(times):
        time = noisy(APART, seed=seed)
        wins += int(np.argmin([np.median([time(index) for _ in range(repeats)]) for index in range(5)])) <= 1
    return wins / times


def main() -> None:
    share, runs = raced()
    print(f"raced: {share:.1%} wins in {runs:.1f} timings")
    needed = None
    for repeats in range(3, 31):
        of_fixed = fixed(repeats)
        print(f"fixed: {of_fixed:.1%} wins in {5 * repeats} timings")
        if of_fixed >= share:
            needed = 5 * repeats
            break
    if needed is not None:
        print(f"the race takes {runs / needed:.0%} of the timings that fixed repeats need for as many wins")


if __name__ == "__main__":
    main()
