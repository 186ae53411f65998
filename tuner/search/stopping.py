"""When a search ends: nothing left can win, nothing left is promising, or the budget is spent."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.search.ledger import Ledger
from tuner.search.prospects import Prospect
from tuner.search.settings import Settings
from tuner.search.transfer import Transfer
from tuner.stores import Trial


@dataclass(slots=True, kw_only=True)
class Budget:
    """Time and trials that are left of a study.

    `spent_s` is the time of its earlier runs, `durations_s` what each compile took, in them and in this one.
    """

    settings: Settings
    clock: Callable[[], float]
    started: float
    spent_s: float
    durations_s: list[float] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Seconds of this run."""
        return self.clock() - self.started

    def exhausted(self, compiled: int) -> str:
        """Returns why there is no room for another compile, or an empty text."""
        if self.settings.max_trials is not None and compiled >= self.settings.max_trials:
            return f"{compiled} candidates were compiled, as many as asked for"
        if self.out_of_time:
            earlier = f", {self.spent_s:.0f} s of it in earlier runs" if self.spent_s else ""
            total = self.spent_s + self.elapsed_s
            return f"the budget of {self.settings.budget_s:.0f} s is spent ({total:.0f} s{earlier})"
        return ""

    @property
    def out_of_time(self) -> bool:
        """Whether a compile that starts now would likely end after the budget."""
        expected = statistics.median(self.durations_s) if self.durations_s else 0.0
        limit = self.settings.budget_s
        return limit is not None and self.spent_s + self.elapsed_s + expected > limit


def unpromising(head: Prospect, ledger: Ledger, settings: Settings, transfer: Transfer, open_count: int) -> str:
    """Returns why the rest of the queue is not worth a compile, short of a proof; empty if it is.

    Estimates are corrected by what earlier studies know of kin or, if there are none, by the median ratio of prediction
    to estimate so far.
    """
    best = ledger.best
    if best is None or best.predicted_s is None:
        return ""
    known = transfer.slack
    estimate_s = head.estimate_s * _bias(ledger.completed) if known is None else transfer.expected_s(head)
    slack = settings.slack if settings.slack is None or known is None else min(settings.slack, known)
    if slack is not None and estimate_s > best.predicted_s * (1 + slack):
        return (
            f"the next of {open_count} open layouts is estimated at {estimate_s * 1e3:.0f} ms, "
            f"more than {slack:.0%} above the best"
        )
    since = unimproved(ledger)
    if settings.patience is not None and since >= settings.patience:
        return f"{since} candidates in a row were not better; {open_count} layouts are open"
    return ""


def unimproved(ledger: Ledger) -> int:
    """Returns how many candidates in a row, baselines aside, were not better than the best."""
    best = ledger.best
    return 0 if best is None else sum(not trial.baseline for trial in ledger.since(best.number))


def _bias(completed: list[Trial]) -> float:
    ratios = [t.predicted_s / t.estimate_s for t in completed if t.estimate_s and t.predicted_s]
    return statistics.median(ratios) if ratios else 1.0
