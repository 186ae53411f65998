"""Timings of devices that do not exist: a true step, lognormal noise, and now and then an outlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def noisy(
    true_s: Sequence[float], *, seed: int, noise: float = 0.02, outliers: float = 0.02, outlier: float = 1.5
) -> Callable[[int], float]:
    """Returns a function that times one of several candidates."""
    rng = np.random.default_rng(seed)

    def time(index: int) -> float:
        sample = true_s[index] * float(np.exp(rng.normal(0, noise)))
        return sample * outlier if rng.random() < outliers else sample

    return time
