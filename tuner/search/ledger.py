"""The books of a search: every trial in our tables and, beside them, in the Optuna study.

Our tables are the truth. A trial is written there first, so that a kill between the two writes leaves an Optuna trial
without its result, which `reconcile` repairs, and never a result that only Optuna knows. Batches get their numbers from
Optuna, which counts for all workers; a kill in between leaves rejected trials there that the next run rejects again.
"""

from __future__ import annotations

import logging
import math
import platform
import random
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.rejections import Stage
from tuner.search.parameters import Parameters, Params
from tuner.search.physical import recall
from tuner.search.pruner import BOUND_STEP, BoundPruner
from tuner.search.sampler import DecidedSampler
from tuner.search.trials import DUPLICATE_OF, PHYSICAL, PROPOSED, UNNUMBERED, repeated
from tuner.stores import Store, Study, Trial, TrialState

log = logging.getLogger(__name__)
T = TypeVar("T")

_PAUSES_S = (0.05, 0.15, 0.5, 1.5)
_CANDIDATE = "candidate"
_REASON = "reject_reason"
_DESCRIPTION = "placement"
_BASELINE = "baseline"

_COMPILED = (Stage.COMPILE, Stage.PLACE, Stage.MEASURE)
_WITHOUT_RESULT = (TrialState.RUNNING, TrialState.INTERRUPTED, TrialState.SUPERSEDED)

Distributions = dict[str, CategoricalDistribution]


@runtime_checkable
class BatchStorage(Protocol):
    """An Optuna storage that writes many trials at once."""

    def create_new_trials(self, study_id: int, templates: Sequence[FrozenTrial]) -> list[int]:
        """Creates finished trials and returns their numbers."""


def utc_now() -> datetime:
    """Returns the current time, aware, in UTC."""
    return datetime.now(UTC)


class Ledger:
    """Opens, updates and closes trials of one study in both places.

    Args:
        store: our tables.
        study: in them.
        optuna_study: its sampler is a `DecidedSampler`.
        optuna_storage: that the Optuna study is in.
        parameters: of the space.
        clock: gives the time.
        learner: is told of every trial that ends, as Optuna knows it.
        keeper: whether this process keeps the books: of several that search a study, one writes what the screen
            rejects; the others keep it in case they have to take over.

    Attributes:
        trials: by the candidate's digest; of several trials of one candidate (under proposed placements) the best.
        elsewhere: trials that run in other processes, by number.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        optuna_study: optuna.Study,
        optuna_storage: optuna.storages.BaseStorage,
        parameters: Parameters,
        clock: Callable[[], datetime] = utc_now,
        learner: Callable[[Sequence[FrozenTrial]], None] | None = None,
        keeper: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._study = study
        self._optuna = optuna_study
        self._storage = optuna_storage
        self._parameters = parameters
        self._clock = clock
        self._learner = learner
        self._keeper = keeper
        self._host = platform.node()
        self._open: dict[int, optuna.Trial] = {}
        self._first: dict[str, Trial] = {}
        self._programs: dict[str, Trial] = {}
        self._placements: dict[str, list[Placement]] = {}
        self._best: Trial | None = None
        self._entered: set[int] = set()
        self._unwritten: dict[str, Trial] = {}
        self._mark = 0
        self._completed: list[Trial] = []
        self._compiled = 0
        self.trials: dict[str, Trial] = {}
        self.elsewhere: dict[int, Trial] = {}
        self.refresh()

    @property
    def completed(self) -> list[Trial]:
        """Trials with a prediction, one for each candidate, in order of number."""
        return list(self._completed)

    def since(self, number: int) -> list[Trial]:
        """Returns those of `completed` with a higher number."""
        return self._completed[bisect_right(self._completed, number, key=lambda trial: trial.number) :]

    @property
    def compiled(self) -> int:
        """Candidates that went to the compiler."""
        return self._compiled

    @property
    def durations_s(self) -> list[float]:
        """Seconds that the first trial of each candidate with a prediction took, from its start to its end."""
        return [
            (trial.finished_at - trial.started_at).total_seconds()
            for trial in self._first.values()
            if trial.predicted_s is not None and trial.started_at is not None and trial.finished_at is not None
        ]

    @property
    def best(self) -> Trial | None:
        """The trial with the best prediction; the first one among equals."""
        return self._best

    @property
    def exhaustive(self) -> bool:
        """Whether every program was ranked under all placements; proposed ones alone prove nothing."""
        return not any(PROPOSED in trial.numbers for trial in self.trials.values())

    @property
    def cut_s(self) -> float:
        """The least bound that the study's pruner ends, for candidates that are not trials yet; infinity without it."""
        pruner = self._optuna.pruner
        return pruner.cut(self._optuna) if isinstance(pruner, BoundPruner) else math.inf

    def refresh(self) -> list[Trial]:
        """Reads what was written since the last time; returns the trials of other processes that ended."""
        changed, self._mark = self._store.changed_trials(self._study.id, self._mark)
        ended = []
        for trial in changed:
            if trial.number in self._open or trial.number in self._entered:
                continue
            if trial.state is TrialState.RUNNING:
                self.elsewhere[trial.number] = trial
                continue
            self.elsewhere.pop(trial.number, None)
            if trial.state not in _WITHOUT_RESULT:
                ended.append(trial)
                self._unwritten.pop(trial.candidate.digest, None)
                self._enter(trial)
        if self._learner is not None and ended:
            self._learner([self._frozen(trial) for trial in ended])
        if self._unwritten and self._keeper():
            self._write(list(self._unwritten.values()))
        return ended

    def give_up(self, trial: Trial) -> None:
        """Ends a trial whose worker vanished, so that its candidate is tried again."""
        if self._interrupt(trial).state is TrialState.INTERRUPTED:
            _settle(lambda: self._optuna.tell(trial.number, state=OptunaState.FAIL, skip_if_finished=True))

    def open(self, candidate: Candidate) -> int:
        """Opens a trial of a candidate and returns its number."""
        self._decide(self._parameters.params(candidate))
        trial = patiently(self._optuna.ask)
        # First what it is of, so that a worker that is killed here leaves no trial that nobody can tell anything of.
        patiently(lambda: trial.set_user_attr(_CANDIDATE, candidate.digest))
        patiently(lambda: self._parameters.suggest(trial))
        self._open[trial.number] = trial
        return trial.number

    def enqueued(self) -> tuple[int, Candidate] | None:
        """Opens the next trial that somebody enqueued in the Optuna study, if there is one, and returns it."""
        if not self._optuna.get_trials(deepcopy=False, states=(OptunaState.WAITING,)):
            return None
        self._decide(self._parameters.defaults)
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
        """Writes a trial's end, in our tables and then in Optuna's, and returns it as it is stored.

        It is superseded if it was given up for lost meanwhile: then its candidate is tried again, perhaps elsewhere.
        """
        ended = self._linked(replace(trial, host=self._host, finished_at=self._clock()))
        ended = self._store.end_trial(self._study.id, ended)
        open_trial = self._open.pop(ended.number)
        if ended.state is TrialState.SUPERSEDED:
            return ended
        if ended.state is not TrialState.INTERRUPTED:
            self._enter(ended)
        _settle(lambda: self._end_in_optuna(open_trial, ended))
        if self._learner is not None:
            self._learner([self._frozen(ended)])
        return ended

    def _end_in_optuna(self, open_trial: optuna.Trial, ended: Trial) -> None:
        physical, distributions = self._physical(ended)
        self._decide(physical)
        for name, distribution in distributions.items():
            open_trial.suggest_categorical(name, distribution.choices)
        for name, value in _attributes(ended).items():
            if name != _CANDIDATE:
                open_trial.set_user_attr(name, value)
        if ended.state is TrialState.COMPLETE:
            self._optuna.tell(open_trial, _value(ended), skip_if_finished=True)
        else:
            self._optuna.tell(open_trial, state=_optuna_state(ended), skip_if_finished=True)

    def placements(self, digest: str) -> Sequence[Placement]:
        """Returns the placements that a candidate was predicted under."""
        return self._placements.get(digest, ())

    def is_open(self, number: int) -> bool:
        """Returns whether a trial of this run has not ended."""
        return number in self._open

    def repeat(self, number: int, candidate: Candidate) -> Trial:
        """Ends a trial whose candidate was tried before, with a link to that."""
        return self.end(repeated(number, candidate, self.trials[candidate.digest]))

    def refuse(self, rejected: Sequence[Trial]) -> None:
        """Writes a batch of trials that the screen rejected, numbered in both places alike.

        Where another process keeps the books, it does: they follow from what all know.
        """
        fresh = [trial for trial in rejected if trial.candidate.digest not in self.trials]
        if fresh and self._keeper():
            self._write(fresh)
            return
        for trial in fresh:
            self._unwritten[trial.candidate.digest] = trial
            self._enter(trial)

    def _write(self, fresh: Sequence[Trial]) -> None:
        self._unwritten.clear()
        frozen = [self._frozen(trial) for trial in fresh]
        numbers = self._create(frozen)
        now = self._clock()
        numbered = [
            replace(trial, number=number, host=self._host, started_at=now, finished_at=now)
            for trial, number in zip(fresh, numbers, strict=True)
        ]
        self._store.save_trials(self._study.id, numbered)
        for trial in numbered:
            self._enter(trial)
        if self._learner is not None:
            self._learner(frozen)

    def settle(self, alive: Callable[[str], bool] = lambda digest: False, *, grace_s: float = 60.0) -> int:
        """Ends what Optuna still believes to be running and is not; returns how many trials that were.

        Such a trial was cut off: it gets the result that our tables hold, or fails. If they hold none, it is left while
        the worker of its candidate is `alive`, which is asked with the candidate's digest, empty if it is not known;
        where it is not, for `grace_s` at most.
        """
        mended = 0
        for frozen in self._optuna.get_trials(deepcopy=False, states=(OptunaState.RUNNING,)):
            if frozen.number in self._open:
                continue
            found = self._store.trials(self._study.id, after=frozen.number - 1, limit=1)
            known = next((trial for trial in found if trial.number == frozen.number), None)
            if known is None or known.state is TrialState.RUNNING:
                digest = frozen.user_attrs.get(_CANDIDATE, "") if known is None else known.candidate.digest
                if alive(digest) and (digest or _age_s(frozen) < grace_s):
                    continue
                known = known and self._interrupt(known)
            complete = known is not None and known.state is TrialState.COMPLETE
            state = OptunaState.FAIL if known is None else _optuna_state(known)
            _settle(
                partial(
                    self._optuna.tell,
                    frozen.number,
                    _value(known) if known is not None and complete else None,
                    state=None if complete else state,
                    skip_if_finished=True,
                )
            )
            mended += 1
        return mended

    def _interrupt(self, trial: Trial) -> Trial:
        lost = replace(trial, state=TrialState.INTERRUPTED, finished_at=self._clock())
        self.elsewhere.pop(trial.number, None)
        return self._store.end_trial(self._study.id, lost)

    def reconcile(self, alive: Callable[[str], bool] = lambda digest: False, *, grace_s: float = 60.0) -> int:
        """Makes the Optuna study agree with our tables; returns how many trials it mended.

        What is cut off ends as `settle` says, and trials that only our tables hold are added.
        """
        ours = {trial.number: trial for trial in self._store.trials(self._study.id)}
        theirs = self._optuna.get_trials(deepcopy=False)
        for trial in ours.values():
            if trial.state is TrialState.RUNNING and not alive(trial.candidate.digest):
                self._interrupt(trial)
        mended = self.settle(alive, grace_s=grace_s)
        missing = range(len(theirs), max(ours, default=-1) + 1)
        if missing:
            # A number that our tables lack was Optuna's alone; it stays taken, so that those after it keep theirs.
            gap = create_trial(state=OptunaState.FAIL)
            self._create([self._frozen(ours[number]) if number in ours else gap for number in missing])
        return mended + len(missing)

    def agrees(self) -> bool:
        """Returns whether Optuna says the same of every trial that has ended: candidate, state and value."""
        theirs = self._optuna.get_trials(deepcopy=False)
        for trial in self._store.trials(self._study.id):
            if trial.state is TrialState.RUNNING:
                continue
            if trial.number >= len(theirs):
                return False
            frozen, complete = theirs[trial.number], trial.state is TrialState.COMPLETE
            expected = (
                trial.candidate.digest,
                OptunaState.COMPLETE if complete else _optuna_state(trial),
                _value(trial) if complete else None,
            )
            if (frozen.user_attrs.get(_CANDIDATE), frozen.state, frozen.values and frozen.values[0]) != expected:
                return False
        return True

    def _enter(self, trial: Trial) -> None:
        if trial.number != UNNUMBERED:
            self._entered.add(trial.number)
        if DUPLICATE_OF in trial.numbers and trial.predicted_s is None:
            return  # what it repeats is entered
        digest = trial.candidate.digest
        self._first.setdefault(digest, trial)
        if trial.lowered_digest:
            self._programs.setdefault(trial.lowered_digest, trial)
        if trial.placement is not None:
            self._placements.setdefault(digest, []).append(trial.placement)
        known = self.trials.get(digest)
        if known is None or _value(trial) < _value(known) or (known.predicted_s is None and trial.predicted_s is None):
            self._replace(known, trial)
        if trial.predicted_s is not None and (self._best is None or _value(trial) < _value(self._best)):
            self._best = trial

    def _replace(self, known: Trial | None, trial: Trial) -> None:
        """Puts a trial in the place of another one of its candidate, and in what is counted, which many ask for."""
        self.trials[trial.candidate.digest] = trial
        self._compiled += (trial.stage in _COMPILED) - (known is not None and known.stage in _COMPILED)
        if known is not None and known.predicted_s is not None:
            self._completed.remove(known)
        if trial.predicted_s is not None:
            insort(self._completed, trial, key=lambda each: each.number)

    def _linked(self, trial: Trial) -> Trial:
        """Returns a trial with the number of the first one whose layout lowered to the same program, if it has one."""
        first = self._programs.get(trial.lowered_digest)
        if (
            first is None
            or trial.state is not TrialState.COMPLETE
            or PROPOSED in trial.numbers
            or first.candidate.digest == trial.candidate.digest
        ):
            return trial
        return replace(trial, numbers={**trial.numbers, DUPLICATE_OF: float(first.number)})

    def _decide(self, params: Params) -> None:
        sampler = self._optuna.sampler
        assert isinstance(sampler, DecidedSampler)
        sampler.params = params

    def _create(self, frozen: Sequence[FrozenTrial]) -> list[int]:
        study_id = self._storage.get_study_id_from_name(self._optuna.study_name)
        if isinstance(self._storage, BatchStorage):
            return self._storage.create_new_trials(study_id, frozen)
        ids = [self._storage.create_new_trial(study_id, template_trial=trial) for trial in frozen]
        return [self._storage.get_trial_number_from_id(trial_id) for trial_id in ids]

    def _physical(self, trial: Trial) -> tuple[Params, Distributions]:
        """Returns the parameters of a trial's placement and their distributions."""
        values = trial.details.get(PHYSICAL) or {}
        questions = recall(self._study.key.slice, trial.candidate.layout, values) if values else {}
        return (
            {question.name: value for question, value in questions.items()},
            {question.name: CategoricalDistribution(question.choices) for question in questions},
        )

    def _frozen(self, trial: Trial) -> FrozenTrial:
        physical, distributions = self._physical(trial)
        complete = trial.state is TrialState.COMPLETE
        return create_trial(
            state=OptunaState.COMPLETE if complete else _optuna_state(trial),
            value=_value(trial) if complete else None,
            params=self._parameters.params(trial.candidate) | physical,
            distributions={**self._parameters.distributions, **distributions},
            user_attrs=dict(_attributes(trial)),
            intermediate_values={} if trial.bound_s is None else {BOUND_STEP: trial.bound_s},
        )


def _settle(write: Callable[[], object]) -> None:
    """Writes to Optuna what our tables hold already: what cannot be written is left to `Ledger.reconcile`."""
    try:
        patiently(write)
    except optuna.exceptions.UpdateFinishedTrialError:
        pass  # it was given up for lost
    except optuna.exceptions.StorageInternalError as error:
        log.warning("the Optuna study lacks a result until it is reconciled: %s", error)


def patiently(call: Callable[[], T]) -> T:
    """Returns what a call of Optuna's returns, tried again while its storage fails."""
    for pause_s in _PAUSES_S:
        try:
            return call()
        except optuna.exceptions.StorageInternalError as error:
            log.warning("Optuna's storage failed, trying again: %s", error)
            time.sleep(pause_s * random.uniform(0.5, 1.5))
    return call()


def _age_s(frozen: FrozenTrial) -> float:
    # Optuna stores UTC and gives local times without a zone.
    return 0.0 if frozen.datetime_start is None else (utc_now() - frozen.datetime_start.astimezone(UTC)).total_seconds()


def _value(trial: Trial) -> float:
    value = trial.measured_s if trial.measured_s is not None else trial.predicted_s
    return math.inf if value is None else value


def _optuna_state(trial: Trial) -> OptunaState:
    return OptunaState.PRUNED if trial.state is TrialState.REJECTED else OptunaState.FAIL


def _attributes(trial: Trial) -> Mapping[str, str | int]:
    attributes: dict[str, str | int] = {_CANDIDATE: trial.candidate.digest}  # with a placement that it is compiled for
    if trial.rejection is not None:
        attributes[_REASON] = trial.rejection.reason.value
    if trial.placement is not None:
        attributes[_DESCRIPTION] = trial.placement.description
    if trial.baseline:
        attributes[_BASELINE] = trial.baseline
    if DUPLICATE_OF in trial.numbers:
        attributes[DUPLICATE_OF] = int(trial.numbers[DUPLICATE_OF])
    return attributes
