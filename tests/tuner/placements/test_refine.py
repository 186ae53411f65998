"""Exchanges of devices."""

import numpy as np

from tuner.placements.refine import every_placement, refine
from tuner.slices.slice import Slice


def inversions(placements):
    """A score with one minimum: the identity."""
    later = placements[:, :, None] > placements[:, None, :]
    return 1.0 + np.triu(later, 1).sum(axis=(1, 2))


def test_a_descent_reaches_the_only_minimum():
    start = np.random.default_rng(0).permutation(10)
    result = refine(inversions, start)
    assert result.devices.tolist() == list(range(10))
    assert result.step_s == 1.0
    assert result.swaps >= 1


def test_a_descent_with_few_neighbours_never_gets_worse():
    start = np.random.default_rng(1).permutation(40)
    result = refine(inversions, start, neighbours=16, rounds=200)
    assert sorted(result.devices.tolist()) == list(range(40))
    assert result.step_s < inversions(start[None])[0]


def test_a_minimum_stays_as_it_is():
    result = refine(inversions, np.arange(6))
    assert (result.swaps, result.scored) == (0, 16)


def test_every_placement_has_each_class_of_symmetric_ones():
    slice_ = Slice(generation_name="v5e", shape=(2, 2), wrap=(False, False))
    assert len(every_placement(slice_)) == 6  # a square can be turned so that the first device is any
    assert len(every_placement(slice_, symmetric=False)) == 24
