"""The space as Optuna parameters: strings and integers with domains that never change within a study.

Optuna refuses a categorical domain that changes, and anything but plain scalars breaks when a study is loaded again, so
mesh sizes are integers, options are text, and a placement is named by its canonical description.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import optuna
from optuna.distributions import CategoricalDistribution

from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout, Option
from tuner.layouts.space import COMPILER_DEFAULT, Space, factorizations, passed_flags

Params = dict[str, Option]

_COMPILER = "compiler."


class Parameters:
    """Translates between candidates and Optuna parameters for one space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        choices: dict[str, tuple[Option, ...]] = {d.name: d.sizes for d in space.dimensions}
        choices |= {choice.name: choice.values for choice in (*space.options, *space.tuned)}
        # The compiler's own default is always in the domain: baselines run with it.
        choices |= {
            _COMPILER + choice.name: tuple(dict.fromkeys((*choice.values, COMPILER_DEFAULT)))
            for choice in space.compiler
        }
        self.distributions: dict[str, CategoricalDistribution] = {
            name: CategoricalDistribution(values) for name, values in choices.items()
        }

    @property
    def defaults(self) -> Params:
        """The first choice of every parameter."""
        return {name: distribution.choices[0] for name, distribution in self.distributions.items()}  # type: ignore[misc]

    def params(self, candidate: Candidate) -> Params:
        """Returns the parameters of a candidate."""
        layout = candidate.layout
        flags = dict(candidate.compiler_options)
        params: Params = {d.name: layout.size(d.name) for d in self._space.dimensions}
        for choice in (*self._space.options, *self._space.tuned):
            params[choice.name] = layout.option(choice.name, choice.values[0])
        for choice in self._space.compiler:
            params[_COMPILER + choice.name] = flags.get(choice.name, COMPILER_DEFAULT)
        return params

    def candidate(self, params: Mapping[str, Option]) -> Candidate:
        """Returns the candidate of parameters. A flag that makes no difference to the layout is left as it starts."""
        axes = {d.name: int(params[d.name]) for d in self._space.dimensions}
        layout = Layout.of(axes, {c.name: params[c.name] for c in (*self._space.options, *self._space.tuned)})
        flags = {
            choice.name: params[_COMPILER + choice.name] if choice.matters(layout) else choice.values[0]
            for choice in self._space.compiler
        }
        return Candidate(layout=layout, compiler_options=passed_flags(flags))

    def mesh(self, devices: int, wanted: Mapping[str, Option]) -> Params:
        """Returns the sizes of mesh axes nearest to what is wanted whose product is `devices`.

        Axis by axis, outermost first, the nearest by ratio among those that the other axes can make up the rest for.
        Raises InvalidValue if the space has no such mesh.
        """
        room = devices
        sizes: Params = {}
        for index, dimension in enumerate(self._space.dimensions):
            rest = self._space.dimensions[index + 1 :]
            want = int(wanted[dimension.name])
            fitting = [
                s for s in dimension.sizes if room % s == 0 and any(True for _ in factorizations(room // s, rest))
            ]
            if not fitting:
                raise InvalidValue(f"the space has no mesh of {devices} devices")
            size = min(fitting, key=lambda size, want=want: abs(math.log(size / want)))  # type: ignore[misc]
            sizes[dimension.name] = size
            room //= size
        return sizes

    def flags(self, candidate: Candidate) -> list[tuple[tuple[str, str], ...]]:
        """Returns every set of compiler flags that differs from a candidate's in a single flag that matters to it."""
        current = dict(candidate.compiler_options)
        now = {choice.name: current.get(choice.name, COMPILER_DEFAULT) for choice in self._space.compiler}
        return [
            passed_flags(now | {choice.name: value})
            for choice in self._space.compiler
            if choice.matters(candidate.layout)
            for value in choice.values
            if value != now[choice.name]
        ]

    def suggest(self, trial: optuna.Trial) -> Candidate:
        """Asks a trial for every parameter and returns the candidate."""
        return self.candidate(
            {name: trial.suggest_categorical(name, d.choices) for name, d in self.distributions.items()}  # type: ignore[misc]
        )
