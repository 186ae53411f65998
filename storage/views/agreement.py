"""How well an order that was predicted agrees with the one that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of trials that were predicted and measured.

    Attributes:
        trials: with both figures.
        rank: Spearman's correlation of ranks, ties sharing their mean; None if either side is all one value.
        median_error: of |predicted / measured - 1|.
    """

    trials: int
    rank: float | None
    median_error: float


def agreement(pairs: Sequence[tuple[float, float]]) -> Agreement | None:
    """Returns the agreement of (predicted, measured) pairs; None for fewer than two that are finite."""
    finite = [(p, m) for p, m in pairs if math.isfinite(p) and math.isfinite(m) and m > 0]
    if len(finite) < 2:
        return None
    predicted, measured = np.asarray(finite).T
    ranks = np.stack([_ranks(predicted), _ranks(measured)])
    rank = None if ranks.std(axis=1).min() == 0 else float(np.asarray(np.corrcoef(ranks))[0, 1])
    return Agreement(trials=len(finite), rank=rank, median_error=float(np.median(np.abs(predicted / measured - 1))))


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], np.float64)
