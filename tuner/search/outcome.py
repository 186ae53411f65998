"""What a search leaves behind, beside the rows that it stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.plans.plan import StoredPlan
from tuner.search.measure import MeasuredOutcome
from tuner.stores import Study, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one search.

    Attributes:
        study: the study that holds every trial.
        trials: trials with a prediction, best first.
        rejected: the rejected trials that came nearest to running: least missing memory first.
        plan: the active plan after the search; None if nothing ran.
        promoted: whether this search made it active.
        baselines: trials of the baselines by name; absent where a baseline is not legal, with the reason in `missing`.
        missing: why a baseline has no trial.
        proved: True if no other layout of the space can be better in the model.
        stopped: why the search ended.
        interrupted: True if it was told to stop.
        measured: what devices took; None if nothing was measured.
        exhausted: True if the budget ended it: another run with more time may find more.
    """

    study: Study
    trials: Sequence[Trial]
    rejected: Sequence[Trial]
    plan: StoredPlan | None
    promoted: bool
    baselines: Mapping[str, Trial]
    missing: Mapping[str, str]
    proved: bool
    stopped: str
    interrupted: bool = False
    exhausted: bool = False
    measured: MeasuredOutcome | None = None
