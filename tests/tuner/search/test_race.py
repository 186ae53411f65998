from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.noise import noisy
from tuner.search.race import EQUAL, MOST, pseudomedian, race, significance

APART = [1.01**rank for rank in range(5)]
"""Five finalists, each 1 % slower than the one before."""


def shuffled(seed: int) -> list[int]:
    return list(np.random.default_rng(seed).permutation(5))


def test_the_best_or_one_within_a_percent_wins_19_times_in_20_at_little_cost() -> None:
    """Case 66: a lucky outlier must not win. Medians of fixed repeats win as often from 9 each on (the benchmark)."""
    good, runs, times = 0, 0, 200
    for seed in range(times):
        ranks = shuffled(seed)
        result = race(5, noisy([APART[rank] for rank in ranks], seed=seed))
        good += ranks[result.order[0]] <= 1
        runs += result.runs
    assert good >= 0.95 * times
    assert runs / times <= 0.6 * 5 * 9


def test_every_round_times_all_that_are_left_and_turns_around() -> None:
    asked: list[int] = []

    def time(index: int) -> float:
        asked.append(index)
        return [1.0, 1.001, 2.0][index] * (1 + 1e-6 * len(asked))

    result = race(3, time, first=4)
    assert asked[:6] == [0, 1, 2, 2, 1, 0]
    assert result.runs == len(asked)
    assert result.order[-1] == 2
    assert len(result.samples_s[2]) == 4  # it left at the first look
    assert len(result.samples_s[0]) == len(result.samples_s[1]) <= MOST


def test_a_device_that_slows_down_changes_nothing() -> None:
    calls = iter(range(10_000))

    def time(index: int) -> float:
        return (1.0, 1.03)[index] * 1.01 ** next(calls)

    assert race(2, time).order == (0, 1)


def test_equals_end_as_soon_as_their_difference_is_worth_nothing() -> None:
    result = race(2, lambda index: 1.0)
    assert result.runs == 2 * EQUAL


def test_who_cannot_be_timed_is_out() -> None:
    result = race(3, lambda index: None if index == 1 else 1.0 + index)
    assert (result.order, result.failed, result.samples_s[1]) == ((0, 2, 1), (1,), ())


def test_nobody_can_be_timed() -> None:
    assert race(2, lambda index: None).failed == (0, 1)


def test_one_alone_is_timed_once() -> None:
    assert race(1, lambda index: 1.0).runs == 1


@pytest.mark.parametrize(("count", "level"), [(3, 1 / 8), (5, 1 / 32)])
def test_significance_of_one_sign_is_that_of_coins(count: int, level: float) -> None:
    assert significance([0.1 * (i + 1) for i in range(count)]) == pytest.approx(level)


def test_nothing_is_significant_about_nothing() -> None:
    assert significance([0.0, 0.0, 0.0]) == 1.0
    assert significance([-0.1, -0.2, -0.3, -0.4, -0.5]) > 0.9


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.floats(-5, 5))
def test_a_pseudomedian_moves_with_its_values(values: list[float], shift: float) -> None:
    middle = pseudomedian(values)
    assert min(values) <= middle <= max(values)
    assert math.isclose(pseudomedian([value + shift for value in values]), middle + shift, abs_tol=1e-9)
