"""Prospects: layouts that passed the screen, with their bound and estimate, and the queue that orders them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuner.layouts.layout import Candidate
from tuner.ports import Screened
from tuner.screening.bounds import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A candidate that may win.

    Attributes:
        candidate: what would be compiled.
        screened: what the screen found.
        bound: no step of this candidate can be faster.
        estimate_s: what its step is guessed to take; orders the queue and decides nothing else.
    """

    candidate: Candidate
    screened: Screened
    bound: Bound
    estimate_s: float


class Queue:
    """Prospects by what is expected of them, the estimate by default, lowest first; equals by the candidate's digest,
    so that a run can be repeated."""

    def __init__(
        self, prospects: Iterable[Prospect], expected_s: Callable[[Prospect], float] = lambda p: p.estimate_s
    ) -> None:
        self._expected_s = expected_s
        self._order = sorted(prospects, key=self._key)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def head(self) -> Prospect | None:
        """The most promising prospect that is left."""
        return self._order[0] if self._order else None

    def add(self, prospect: Prospect) -> None:
        """Takes a prospect in, unless it is there."""
        if all(other.candidate.digest != prospect.candidate.digest for other in self._order):
            insort(self._order, prospect, key=self._key)

    def drop(self, digest: str) -> None:
        """Takes a candidate out, wherever it stands."""
        self._order = [p for p in self._order if p.candidate.digest != digest]

    def hopeless(self, best_s: float) -> list[Prospect]:
        """Takes out and returns every prospect whose bound shows that it cannot beat `best_s`."""
        gone = [p for p in self._order if p.bound.step_s >= best_s]
        self._order = [p for p in self._order if p.bound.step_s < best_s]
        return gone

    def _key(self, prospect: Prospect) -> tuple[float, str]:
        return self._expected_s(prospect), prospect.candidate.digest
