"""The default sampler: best-first over a queue that the funnel orders by estimate.

The physical half is not sampled: each compiled program is placed by exhaustive ranking of the structured families.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from tuner.search.parameters import Params
from tuner.search.settings import SamplerName


class BestFirstSampler(BaseSampler):
    """Proposes what `pop` returns: the parameters of the most promising candidate that is left."""

    def __init__(self, pop: Callable[[], Params]) -> None:
        self._pop = pop
        self._params: Params = {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Takes the next candidate for the trial that starts."""
        self._params = self._pop()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter is proposed one by one."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing is proposed jointly."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Returns the candidate's value of a parameter."""
        return self._params[param_name]


def make_sampler(name: SamplerName, *, seed: int, pop: Callable[[], Params]) -> BaseSampler:
    """Returns the sampler of that name; `pop` serves the best-first one."""
    match name:
        case SamplerName.BEST_FIRST:
            return BestFirstSampler(pop)
        case SamplerName.TPE:
            return TPESampler(seed=seed)
        case SamplerName.RANDOM:
            return RandomSampler(seed=seed)
