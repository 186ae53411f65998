"""Who proposes. The study's own sampler hands out what was decided; an adviser asks one of Optuna's samplers.

An adviser's sampler lives in a study of its own, in memory. There it may propose what is illegal or was tried before as
often as it likes, at no cost in the database, and there it learns from results alone, not from what could never run.
What it proposes becomes a trial of the real study when it is legal and new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from tuner.layouts.layout import Candidate, Layout
from tuner.placements.families import Structure
from tuner.search.parameters import Parameters, Params
from tuner.search.physical import Question, structure
from tuner.search.settings import SamplerName
from tuner.search.trials import DUPLICATE_OF
from tuner.slices.slice import Slice

MOST_KEPT = 400
"""Results that an adviser remembers at least, half of them the best and half the last. It forgets others, so that what
a proposal costs does not grow."""

MOST_DRAWN = 200
"""Illegal proposals in a row after which a sampler has no more legal ones."""


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

    Of the sizes that a sampler proposes for mesh axes, one product in a thousand may be that of the slice, so they are
    taken to the nearest mesh that is.

    Args:
        make: builds the sampler from a seed; asked again when the memory is renewed.
        parameters: of the space.
        slice_: that layouts are for.
        seed: makes it repeatable.
    """

    def __init__(self, make: Callable[[int], BaseSampler], parameters: Parameters, slice_: Slice, *, seed: int) -> None:
        self._make = make
        self._parameters = parameters
        self._slice = slice_
        self._seed = seed
        self._known: list[FrozenTrial] = []
        self._renew()

    def propose(self, legal: Callable[[Candidate], bool]) -> Candidate | None:
        """Returns a candidate that is legal; None if the sampler finds none."""
        space = self._sampler.infer_relative_search_space(self._study, self._trial)
        for _ in range(MOST_DRAWN):
            params = dict(self._sampler.sample_relative(self._study, self._trial, space))
            for name, distribution in self._parameters.distributions.items():
                if name not in params:
                    params[name] = self._independent(name, distribution.choices)
            params |= self._parameters.mesh(self._slice.num_devices, params)
            candidate = self._parameters.candidate(params)
            if legal(candidate):
                return candidate
        return None

    def place(self, layout: Layout, ordered: Collection[str]) -> Structure:
        """Returns a placement of a layout."""

        def answer(question: Question) -> int:
            return question.choices.index(self._independent(question.name, question.choices))

        return structure(self._slice, layout, ordered, answer)

    def learn(self, trials: Sequence[FrozenTrial]) -> None:
        """Takes in results, whoever proposed them."""
        useful = [trial for trial in trials if trial.value is not None or _is_pruned(trial)]
        self._known += useful
        if len(self._known) > 2 * MOST_KEPT:
            self._renew()
        else:
            self._study.add_trials(useful)

    def _independent(self, name: str, choices: Sequence[Any]) -> Any:
        if len(choices) == 1:
            return choices[0]
        return self._sampler.sample_independent(self._study, self._trial, name, CategoricalDistribution(choices))

    def _renew(self) -> None:
        """Makes a study that knows the best and the last results only."""
        complete = [trial for trial in self._known if trial.value is not None]
        best = sorted(complete, key=lambda trial: (trial.value, trial.number))[: MOST_KEPT // 2]
        kept = {id(trial) for trial in (*best, *self._known[-MOST_KEPT // 2 :])}
        self._known = [trial for trial in self._known if id(trial) in kept]
        self._sampler = self._make(self._seed)
        self._study = optuna.create_study(direction="minimize", sampler=self._sampler)
        self._study.ask()
        (self._trial,) = self._study.get_trials(deepcopy=False)  # all proposals are made for it
        self._study.add_trials(self._known)
        self._seed += 1


def _is_pruned(trial: FrozenTrial) -> bool:
    """Returns whether a trial ended for what it is, not for being the same as another."""
    return trial.state is TrialState.PRUNED and DUPLICATE_OF not in trial.user_attrs


def make_adviser(name: SamplerName, parameters: Parameters, slice_: Slice, *, seed: int) -> Adviser | None:
    """Returns the adviser of that name; None for best-first, which takes no advice."""
    match name:
        case SamplerName.BEST_FIRST:
            return None
        case SamplerName.TPE:
            return Adviser(lambda seed: TPESampler(seed=seed), parameters, slice_, seed=seed)
        case SamplerName.RANDOM:
            return Adviser(lambda seed: RandomSampler(seed=seed), parameters, slice_, seed=seed)
