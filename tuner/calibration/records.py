"""Observations and fits in a store, and which constants a search takes."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from tuner.calibration.calibration import Calibration, calibration
from tuner.calibration.fitted import Fit
from tuner.calibration.observation import Observation
from tuner.plans.toolchain import Toolchain


class CalibrationStore(abc.ABC):
    """What devices were seen to take, and the constants that were fitted to it."""

    @abc.abstractmethod
    def save_observations(self, observations: Sequence[Observation]) -> None:
        """Adds rows, in one transaction; none is ever replaced."""

    @abc.abstractmethod
    def observations(self, generation: str, toolchain: Toolchain | None = None) -> Sequence[Observation]:
        """Returns the rows of a generation, of one toolchain if it is given, oldest first."""

    @abc.abstractmethod
    def save_fit(self, fit: Fit) -> None:
        """Adds a fit; earlier ones stay as history."""

    @abc.abstractmethod
    def fits(self, generation: str | None = None, *, limit: int | None = None) -> Sequence[Fit]:
        """Returns fits, newest first, of one generation if it is given."""

    @abc.abstractmethod
    def fit_in_use(self, generation: str, toolchain: Toolchain) -> Fit | None:
        """Returns the newest fit of a generation and toolchain that searches take, or None."""


def constants(store: CalibrationStore, generation: str, toolchain: Toolchain) -> Calibration:
    """Returns the constants that predictions take: the fit in use of exactly that toolchain, else the shipped ones.

    Another toolchain compiles other programs for the same source, so its fit says nothing that can be relied on.

    Raises UnknownName if there is no such generation.
    """
    fit = store.fit_in_use(generation, toolchain)
    return calibration(generation) if fit is None else fit.calibration
