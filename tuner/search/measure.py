"""The measure stage: the promising candidates of a study on real devices, and the one that is fastest there.

Every candidate is a trial of the measured study, which is another one than the predicted: an objective is one kind of
evidence. Its timings go to Optuna block by block, and the pruner ends those that have lost. The finalists are then
timed again in turns (`tuner.search.race`), and the winner is the winner of that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import optuna

from tuner.errors import TunerError
from tuner.heartbeat import Heartbeat
from tuner.layouts.space import Space
from tuner.plans.plan import Evidence, Plan
from tuner.ports import Runner, WorkloadSpec
from tuner.rejections import Rejection, RejectReason
from tuner.search.losing import LEAST, P_VALUE
from tuner.search.measured import Book, Timed
from tuner.search.promising import MOST, Entry, Role, promising
from tuner.search.race import race, significance
from tuner.stores import Store, StudyKey, Trial, TrialState, TrialStore
from tuner.timings import Measured

BLOCKS = 8
FINALISTS = 5
NEAR = 0.1
"""Finalists are at most so much slower than the fastest, as a share."""


COMPARED = (Role.INCUMBENT, Role.BASELINE)
"""What others are compared with, so that an early stop would spare a little time and cost the comparison."""


class Measuring(TunerError):
    """Somebody else measures on the slice; the text says who."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a search knows before anything is measured.

    Attributes:
        key: of the predicted study.
        spec: the workload, to be found again where it runs.
        space: its space.
        trials: with predictions.
        baselines: trials of the baselines by name.
        incumbent: the plan in service for the key.
        error: relative error of the model.
        seed: of the draw of a random candidate.
    """

    key: StudyKey
    spec: WorkloadSpec
    space: Space
    trials: Sequence[Trial]
    baselines: Mapping[str, Trial]
    incumbent: Plan | None
    error: float
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOutcome:
    """The result of one measure stage.

    Attributes:
        study: name of the measured study.
        timed: candidates, fastest first; then those that were stopped or did not run.
        predicted: how many candidates had a prediction, of which these were worth measuring.
        samples: blocks timed, the race's included.
        device_s: seconds for which the devices were held.
        left_out: candidates that there was no time left for.
    """

    study: str
    timed: Sequence[Timed]
    predicted: int
    samples: int
    device_s: float = 0.0
    left_out: int = 0

    @property
    def best(self) -> Timed | None:
        """The winner; None if nothing ran."""
        return next((timed for timed in self.timed if timed.step_s is not None), None)

    @property
    def incumbent(self) -> Timed | None:
        """The plan that was in service, as it ran beside the others; None if there was none."""
        return next((timed for timed in self.timed if timed.entry.role is Role.INCUMBENT), None)

    def baseline(self, name: str) -> Timed | None:
        """Returns a baseline in JAX's default order; None if it was not measured as such."""
        return next((timed for timed in self.timed if timed.entry.name == name), None)


Measure = Callable[[Predicted], MeasuredOutcome | None]
"""A measure stage, as a search calls it: `MeasureStage.run`, or something that may find that there are no devices."""


def wrong_candidates(store: TrialStore, key: StudyKey) -> frozenset[str]:
    """Returns the digests of candidates that were found, in any measurement of a study's key, to compute something
    else. They never become plans."""
    name = replace(key, evidence=Evidence.MEASURED).name
    study = next((study for study in store.studies() if study.key.name == name), None)
    trials = () if study is None else store.trials(study.id, state=TrialState.REJECTED)
    wrong = (trial for trial in trials if trial.rejection and trial.rejection.reason is RejectReason.WRONG_RESULT)
    return frozenset(trial.candidate.digest for trial in wrong)


class MeasureStage:
    """Measures on the devices that a runner has.

    Args:
        runner: has the devices.
        store: ours, with the leases that let one process at a time measure on a slice.
        optuna_storage: that Optuna's studies are in.
        most: promising candidates at most.
        others: further candidates, drawn at random.
        blocks: timings of a candidate that is not stopped early.
        finalists: that are timed again in turns.
        margin: relative difference that is worth nothing.
        wait_s: for somebody else who measures on the slice.
        budget_s: no candidate is begun, and no race, after the devices were held for so long; None for no limit.
        on_timed: is told of every trial that ends.
        clock, sleep: for tests.
    """

    def __init__(
        self,
        *,
        runner: Runner,
        store: Store,
        optuna_storage: optuna.storages.BaseStorage,
        most: int = MOST,
        others: int = 1,
        blocks: int = BLOCKS,
        finalists: int = FINALISTS,
        margin: float = 0.01,
        wait_s: float = 600.0,
        budget_s: float | None = None,
        on_timed: Callable[[Timed], None] = lambda timed: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runner = runner
        self._store = store
        self._optuna_storage = optuna_storage
        self._most = most
        self._others = others
        self._blocks = blocks
        self._finalists = finalists
        self._margin = margin
        self._wait_s = wait_s
        self._budget_s = budget_s
        self._on_timed = on_timed
        self._clock = clock
        self._sleep = sleep

    def run(self, predicted: Predicted) -> MeasuredOutcome:
        """Measures what is promising.

        Raises Measuring if somebody else measures on the slice for too long, and what the runner raises.
        """
        entries = promising(
            predicted.trials,
            predicted.key.slice,
            error=predicted.error,
            baselines=predicted.baselines,
            incumbent=predicted.incumbent,
            others=self._others,
            most=self._most,
            seed=predicted.seed,
            jax=predicted.key.toolchain.jax_release,
        )
        resource = f"measure/{predicted.key.slice.name}"
        with Heartbeat(self._store) as heartbeat:
            self._wait_for(heartbeat, resource)
            started = self._clock()
            book = Book(self._store, self._optuna_storage, predicted.key, predicted.space)
            samples = 0
            timed: list[Timed] = []
            for entry in entries:
                if self._spent(started):
                    break
                if not heartbeat.holds(resource):
                    raise Measuring(f"the right to measure on {predicted.key.slice.name} was lost to somebody else")
                ran = [each for each in timed if each.step_s is not None]
                best = min(ran, key=lambda each: each.step_s or 0.0, default=None)
                ended, blocks = self._time(book, predicted, entry, best)
                samples += blocks
                timed.append(ended)
                self._on_timed(ended)
            left_out = len(entries) - len(timed)
            timed, raced = self._race(book, predicted, timed, most=0 if self._spent(started) else self._finalists)
            book.close()
            device_s = self._clock() - started
        return MeasuredOutcome(
            study=book.name,
            timed=timed,
            predicted=sum(trial.predicted_s is not None for trial in predicted.trials),
            samples=samples + raced,
            device_s=device_s,
            left_out=left_out,
        )

    def _spent(self, started: float) -> bool:
        return self._budget_s is not None and self._clock() - started >= self._budget_s

    def _wait_for(self, heartbeat: Heartbeat, resource: str) -> None:
        until = self._clock() + self._wait_s
        while heartbeat.claim(resource) is None:
            if self._clock() >= until:
                held = next((lease for lease in self._store.leases(resource) if lease.resource == resource), None)
                who = "somebody else" if held is None else held.host or held.owner
                raise Measuring(f"{who} holds {resource}; one process at a time measures on a slice")
            self._sleep(1.0)

    def _time(self, book: Book, predicted: Predicted, entry: Entry, best: Timed | None) -> tuple[Timed, int]:
        """Times one candidate until it has enough blocks, or has lost; returns also the blocks that it took.

        The plan in service and the baselines, which others are compared with, are timed to the end. Before another is
        given up, the best one is timed again: it may be the device that has become slower since.
        """
        number, told, lost = book.open(entry), list[float](), False

        def enough(samples: Sequence[float]) -> bool:
            nonlocal lost
            for seconds in samples[len(told) :]:
                lost = book.report(number, seconds, len(told)) and entry.role not in COMPARED
                told.append(seconds)
            return lost or len(told) >= self._blocks

        try:
            outcome = self._measure(predicted, entry, enough)
            blocks = len(told)
            contested = False
            if lost and best is not None and isinstance(outcome, Measured):
                again = self._measure(predicted, best.entry, lambda samples: len(samples) >= LEAST)
                if isinstance(again, Measured) and not _is_slower(outcome, again):
                    contested = True
                    outcome = self._measure(predicted, entry, lambda samples: len(samples) >= self._blocks)
                    lost = False
                blocks += LEAST + (self._blocks if contested else 0)
        except BaseException:
            book.interrupt(number)
            raise
        return replace(book.end(number, outcome, lost=lost), contested=contested), blocks

    def _measure(
        self, predicted: Predicted, entry: Entry, enough: Callable[[Sequence[float]], bool]
    ) -> Measured | Rejection:
        return self._runner.measure(
            predicted.spec, predicted.key.slice, entry.candidate, entry.placement, enough=enough
        )

    def _race(self, book: Book, predicted: Predicted, timed: list[Timed], *, most: int) -> tuple[list[Timed], int]:
        """Times at most so many finalists again in turns; returns all, fastest first, and the blocks that it took."""
        ran = sorted(
            (each for each in timed if each.step_s is not None),
            key=lambda each: (each.step_s or 0.0, each.trial.number),
        )
        others = [each for each in timed if each.step_s is None]
        fastest_s = ran[0].step_s if ran else None
        near = [t for t in ran if fastest_s is not None and (t.step_s or 0.0) <= (1 + NEAR) * fastest_s]
        final = [*near, *(each for each in ran if each.contested and each not in near)][:most]
        if len(final) < 2:
            return [*ran, *others], 0

        def seconds(index: int) -> float | None:
            outcome = self._measure(predicted, final[index].entry, lambda samples: True)
            return outcome.samples_s[-1] if isinstance(outcome, Measured) else None

        result = race(len(final), seconds, margin=self._margin)
        ranked = [
            book.amend(final[index], result.samples_s[index], place)
            for place, index in enumerate(result.order)
            if index not in result.failed
        ]
        failed = [final[index] for index in result.failed]
        rest = [each for each in ran if each not in final]
        return [*ranked, *rest, *failed, *others], result.runs


def _is_slower(measured: Measured, best: Measured) -> bool:
    """Returns whether the last timings of one are slower than those of another that were made right after."""
    pairs = zip(measured.samples_s[-LEAST:], best.samples_s[-LEAST:], strict=True)
    return significance([math.log(ours / theirs) for ours, theirs in pairs]) < P_VALUE
