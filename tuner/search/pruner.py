"""The screen as an Optuna pruner: a trial whose lower bound cannot beat the best prediction ends before its compile."""

from __future__ import annotations

import math

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

BOUND_STEP = 0
"""The intermediate step under which a trial reports its lower bound, in seconds."""


class BoundPruner(BasePruner):
    """Prunes a trial whose reported bound is at or above the best complete value of the study.

    The bound is admissible (never above the truth), so nothing that could win is pruned.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Returns True if the trial's bound shows that it cannot win."""
        bound = trial.intermediate_values.get(BOUND_STEP)
        return bound is not None and bound >= self.cut(study)

    def cut(self, study: optuna.Study) -> float:
        """Returns the least bound that is pruned, infinity while nothing is complete."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return min((trial.value for trial in complete if trial.value is not None), default=math.inf)
