"""The books of a search: every trial in our tables and, beside them, in the Optuna study.

Our tables are the truth. A trial is written there first, so that a kill between the two writes leaves an Optuna trial
without its result, which `reconcile` repairs, and never a result that only Optuna knows.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import optuna
from optuna.trial import TrialState as OptunaState
from optuna.trial import create_trial

from tuner.layouts.layout import Candidate
from tuner.rejections import Stage
from tuner.search.parameters import Parameters
from tuner.search.pruner import BOUND_STEP
from tuner.stores import Study, Trial, TrialState, TrialStore

_CANDIDATE = "candidate"
_REASON = "reject_reason"
_DESCRIPTION = "placement"
_BASELINE = "baseline"


def utc_now() -> datetime:
    """Returns the current time, aware, in UTC."""
    return datetime.now(UTC)


class Ledger:
    """Opens, updates and closes trials of one study in both places."""

    def __init__(
        self,
        store: TrialStore,
        study: Study,
        optuna_study: optuna.Study,
        parameters: Parameters,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._study = study
        self._optuna = optuna_study
        self._parameters = parameters
        self._clock = clock
        self._host = platform.node()
        self._open: dict[int, optuna.Trial] = {}
        self.trials: dict[str, Trial] = {
            trial.candidate.digest: trial
            for trial in store.trials(study.id)
            if trial.state not in (TrialState.RUNNING, TrialState.INTERRUPTED)
        }

    @property
    def completed(self) -> list[Trial]:
        """Trials with a prediction, in order of number."""
        done = [trial for trial in self.trials.values() if trial.predicted_s is not None]
        return sorted(done, key=lambda trial: trial.number)

    @property
    def compiled(self) -> int:
        """Trials that went to the compiler."""
        return sum(trial.stage in (Stage.COMPILE, Stage.PLACE, Stage.MEASURE) for trial in self.trials.values())

    @property
    def durations_s(self) -> list[float]:
        """Seconds that each of these took, from its start to its end."""
        return [
            (trial.finished_at - trial.started_at).total_seconds()
            for trial in self.completed
            if trial.started_at is not None and trial.finished_at is not None
        ]

    @property
    def best(self) -> Trial | None:
        """The trial with the best prediction; the first one among equals."""
        return min(self.completed, key=lambda trial: (_value(trial), trial.number), default=None)

    def ask(self) -> tuple[int, Candidate]:
        """Asks Optuna for the next candidate; returns the trial's number and the candidate."""
        trial = self._optuna.ask()
        candidate = self._parameters.suggest(trial)
        trial.set_user_attr(_CANDIDATE, candidate.digest)
        self._open[trial.number] = trial
        return trial.number, candidate

    def hopeless(self, number: int, bound_s: float) -> bool:
        """Reports a trial's bound to Optuna and returns whether its pruner ends the trial."""
        trial = self._open[number]
        trial.report(bound_s, BOUND_STEP)
        return trial.should_prune()

    def start(self, trial: Trial) -> Trial:
        """Writes a trial that goes to the compiler."""
        running = replace(
            trial, state=TrialState.RUNNING, stage=Stage.COMPILE, host=self._host, started_at=self._clock()
        )
        self._store.save_trials(self._study.id, [running])
        return running

    def end(self, trial: Trial) -> Trial:
        """Writes a trial's end, in our tables and then in Optuna's."""
        ended = replace(trial, host=self._host, finished_at=self._clock())
        self._store.save_trials(self._study.id, [ended])
        if ended.state is not TrialState.INTERRUPTED:
            self.trials[ended.candidate.digest] = ended
        open_trial = self._open.pop(ended.number)
        for name, value in _attributes(ended).items():
            open_trial.set_user_attr(name, value)
        if ended.state is TrialState.COMPLETE:
            self._optuna.tell(open_trial, _value(ended))
        else:
            self._optuna.tell(open_trial, state=_optuna_state(ended))
        return ended

    def is_open(self, number: int) -> bool:
        """Returns whether a trial of this run has not ended."""
        return number in self._open

    def discard(self, number: int, *, value_s: float | None = None) -> None:
        """Ends an Optuna trial that our tables do not keep: an illegal layout, or one that was tried before.

        A repeated candidate tells its known value, so that the sampler learns from it again without a compile.
        """
        trial = self._open.pop(number)
        if value_s is None:
            trial.set_constraint("legal", 1.0)
            self._optuna.tell(trial, state=OptunaState.PRUNED)
        else:
            self._optuna.tell(trial, value_s)

    def refuse(self, rejected: Sequence[Trial]) -> None:
        """Writes a batch of trials that the screen rejected, numbering them in both places alike."""
        fresh = [trial for trial in rejected if trial.candidate.digest not in self.trials]
        if not fresh:
            return
        first = len(self._optuna.get_trials(deepcopy=False))
        now = self._clock()
        numbered = [
            replace(trial, number=first + index, host=self._host, started_at=now, finished_at=now)
            for index, trial in enumerate(fresh)
        ]
        self._store.save_trials(self._study.id, numbered)
        self._optuna.add_trials([self._frozen(trial) for trial in numbered])
        self.trials |= {trial.candidate.digest: trial for trial in numbered}

    def reconcile(self) -> int:
        """Makes the Optuna study agree with our tables; returns how many trials it mended.

        A trial that Optuna still believes to be running was cut off: it gets the result that our tables hold, or fails.
        Trials that only our tables hold are added.
        """
        mended = 0
        ours = {trial.number: trial for trial in self._store.trials(self._study.id)}
        theirs = self._optuna.get_trials(deepcopy=False)
        for frozen in theirs:
            if frozen.state in (OptunaState.RUNNING, OptunaState.WAITING):
                known = ours.get(frozen.number)
                if known is not None and known.state is TrialState.COMPLETE:
                    self._optuna.tell(frozen.number, _value(known))
                else:
                    self._optuna.tell(frozen.number, state=OptunaState.FAIL)
                mended += 1
        for trial in ours.values():
            if trial.state is TrialState.RUNNING:
                self._store.save_trials(
                    self._study.id, [replace(trial, state=TrialState.INTERRUPTED, finished_at=self._clock())]
                )
        missing = [ours[number] for number in sorted(ours) if number >= len(theirs)]
        if missing:
            self._optuna.add_trials([self._frozen(trial) for trial in missing])
        return mended + len(missing)

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        params = self._parameters.params(trial.candidate)
        complete = trial.state is TrialState.COMPLETE
        return create_trial(
            state=OptunaState.COMPLETE if complete else _optuna_state(trial),
            value=_value(trial) if complete else None,
            params=params,
            distributions=dict(self._parameters.distributions),
            user_attrs=dict(_attributes(trial)),
            intermediate_values={} if trial.bound_s is None else {BOUND_STEP: trial.bound_s},
        )


def _value(trial: Trial) -> float:
    value = trial.measured_s if trial.measured_s is not None else trial.predicted_s
    return math.inf if value is None else value


def _optuna_state(trial: Trial) -> OptunaState:
    return OptunaState.PRUNED if trial.state is TrialState.REJECTED else OptunaState.FAIL


def _attributes(trial: Trial) -> Mapping[str, str]:
    attributes = {_CANDIDATE: trial.candidate.digest}  # with the placement, which no parameter holds
    if trial.rejection is not None:
        attributes[_REASON] = trial.rejection.reason.value
    if trial.placement is not None:
        attributes[_DESCRIPTION] = trial.placement.description
    if trial.baseline:
        attributes[_BASELINE] = trial.baseline
    return attributes
