"""Who proposes. The study's own sampler hands out what was decided; an adviser asks one of Optuna's samplers.

An adviser's sampler lives in a study of its own, in memory. There it may propose what is illegal or was tried before as
often as it likes, at no cost in the database, and there it learns only what helps: every result, and at the start what
the screen estimates. What it proposes becomes a trial of the real study when it is legal and new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from tuner.layouts.layout import Candidate, Layout
from tuner.placements.families import Structure
from tuner.search.parameters import Parameters, Params
from tuner.search.physical import Question, structure
from tuner.search.settings import SamplerName
from tuner.slices.slice import Slice

MOST_KEPT = 500
"""Results that an adviser learns from, half of them the best and half the last: what a proposal costs does not grow."""


class DecidedSampler(BaseSampler):
    """Answers with `params`, whoever decided them."""

    def __init__(self) -> None:
        self.params: Params = {}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter is answered one by one."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing is proposed jointly."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Returns what was decided."""
        return self.params[param_name]


class Adviser:
    """One of Optuna's samplers, with a memory of its own.

    Args:
        make: builds the sampler from a seed; asked again when the memory is renewed.
        parameters: of the space.
        seed: makes it repeatable.
    """

    def __init__(self, make: Callable[[int], BaseSampler], parameters: Parameters, *, seed: int) -> None:
        self._make = make
        self._parameters = parameters
        self._seed = seed
        self._known: list[FrozenTrial] = []
        self._study = self._renewed()

    def propose(self) -> tuple[optuna.Trial, Candidate]:
        """Returns a proposal and its candidate. Ends with `place`, `refuse` or `forget`."""
        if len(self._study.get_trials(deepcopy=False)) > 4 * MOST_KEPT:
            self._study = self._renewed()
        trial = self._study.ask()
        return trial, self._parameters.suggest(trial)

    def place(self, trial: optuna.Trial, slice_: Slice, layout: Layout, ordered: Collection[str]) -> Structure:
        """Asks a proposal for its placement too."""

        def answer(question: Question) -> int:
            return question.choices.index(trial.suggest_categorical(question.name, question.choices))

        return structure(slice_, layout, ordered, answer)

    def refuse(self, trial: optuna.Trial) -> None:
        """Ends a proposal that is illegal."""
        trial.set_constraint("legal", 1.0)
        self._study.tell(trial, state=TrialState.PRUNED)

    def forget(self, trial: optuna.Trial) -> None:
        """Ends a proposal that teaches nothing: a repeated one, or one whose result is learnt when it is there."""
        self._study.tell(trial, state=TrialState.FAIL)

    def learn(self, trials: Sequence[FrozenTrial]) -> None:
        """Takes in results, whoever proposed them."""
        useful = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        self._known += useful
        self._study.add_trials(useful[-MOST_KEPT:])

    def _renewed(self) -> optuna.Study:
        """Returns a study that knows the best and the last results only."""
        complete = [trial for trial in self._known if trial.value is not None]
        best = sorted(complete, key=lambda trial: (trial.value, trial.number))[: MOST_KEPT // 2]
        kept = {id(trial) for trial in (*best, *self._known[-MOST_KEPT // 2 :])}
        self._known = [trial for trial in self._known if id(trial) in kept]
        study = optuna.create_study(direction="minimize", sampler=self._make(self._seed))
        study.add_trials(self._known)
        self._seed += 1
        return study


def make_adviser(name: SamplerName, parameters: Parameters, *, seed: int) -> Adviser | None:
    """Returns the adviser of that name; None for best-first, which takes no advice."""
    match name:
        case SamplerName.BEST_FIRST:
            return None
        case SamplerName.TPE:
            return Adviser(lambda seed: TPESampler(seed=seed), parameters, seed=seed)
        case SamplerName.RANDOM:
            return Adviser(lambda seed: RandomSampler(seed=seed), parameters, seed=seed)
