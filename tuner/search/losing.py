"""The early stop of a measurement as an Optuna pruner: a trial ends when its timings show that it has lost."""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from tuner.search.race import significance

P_VALUE = 0.05
LEAST = 5
"""With fewer pairs no result of a one-sided Wilcoxon test is below 5 %."""


class LosingPruner(BasePruner):
    """Prunes a trial whose reported timings are slower than the best's of the same run, by Wilcoxon's signed-rank test.

    Timings are paired by their step. Optuna's own `WilcoxonPruner` compares with the best trial of the whole study;
    yesterday's timings on a device that has become slower since would end every trial of today.

    Args:
        p_value: of the one-sided test.
        least: timings before a trial may end.
        since: number of the first trial of this run.
    """

    def __init__(self, *, p_value: float = P_VALUE, least: int = LEAST, since: int = 0) -> None:
        self._p_value = p_value
        self._least = least
        self.since = since

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Returns True if the trial is slower than the best one."""
        best = self.best(study)
        if best is None or best.number == trial.number:
            return False
        steps = sorted(trial.intermediate_values.keys() & best.intermediate_values.keys())
        if len(steps) < self._least:
            return False
        ratios = [math.log(trial.intermediate_values[step] / best.intermediate_values[step]) for step in steps]
        return significance(ratios) < self._p_value

    def best(self, study: optuna.Study) -> FrozenTrial | None:
        """Returns the fastest complete trial of this run."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        ours = [each for each in complete if each.number >= self.since and each.value is not None]
        return min(ours, key=lambda each: (each.value, each.number), default=None)
