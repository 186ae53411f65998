"""What earlier studies found out about a model: at other shapes, on other slices, under other toolchains."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.layouts.layout import Candidate

MOST_STUDIES = 24
"""Newest studies of a model that are remembered."""

MOST_TRIALS = 24
"""Trials that are remembered of each, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """A candidate that was compiled and placed in some study of the model.

    Attributes:
        study_id: the study.
        slice_name: where it was placed.
        shape: that the step ran at.
        candidate: layout and compiler options.
        estimate_s: what the screen guessed; None if it was compiled without one.
        predicted_s: what the compiled program is predicted to take.
    """

    study_id: int
    slice_name: str
    shape: str
    candidate: Candidate
    estimate_s: float | None
    predicted_s: float


class ExperienceStore(abc.ABC):
    """Reads results across studies."""

    @abc.abstractmethod
    def experience(self, model: str, *, besides: int | None = None) -> Sequence[Experience]:
        """Returns the best complete trials of the newest studies of a model, newest study first, best trial first.

        At most `MOST_TRIALS` of each of `MOST_STUDIES` studies that have any; the study `besides` is left out, and so
        are studies whose evidence is not a prediction.
        """
