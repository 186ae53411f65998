"""The measure stage: the promising candidates of a study on real devices, and the one that is fastest there.

Every candidate is a trial of the measured study, which is another one than the predicted: an objective is one kind of
evidence. Its timings go to Optuna block by block, and the pruner ends those that have lost. The finalists are then
timed again in turns (`tuner.search.race`), and the winner is the winner of that.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import optuna
from optuna.trial import TrialState as OptunaState

from tuner.errors import TunerError
from tuner.heartbeat import Heartbeat
from tuner.layouts.space import Space
from tuner.measurements import Measurement, Source
from tuner.plans.plan import Evidence, Plan
from tuner.ports import Runner, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.ledger import utc_now
from tuner.search.losing import LEAST, P_VALUE, LosingPruner
from tuner.search.parameters import Parameters
from tuner.search.promising import MOST, Entry, Role, promising
from tuner.search.race import race, significance
from tuner.search.sampler import DecidedSampler
from tuner.stores import Store, StudyKey, Trial, TrialState, TrialStore
from tuner.timings import Measured

BLOCKS = 8
FINALISTS = 5
NEAR = 0.1
"""Finalists are at most so much slower than the fastest, as a share."""


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
class Timed:
    """One candidate's measurement: its trial in the measured study and, if it ran, its times.

    `contested` if it looked slower than the best one, which then turned out to have become slower too: the device had
    changed, and only timings in turns can tell.
    """

    entry: Entry
    trial: Trial
    measured: Measured | None = None
    contested: bool = False

    @property
    def step_s(self) -> float | None:
        """Seconds of a step; None if it did not run, or was stopped early."""
        return self.trial.measured_s if self.trial.state is TrialState.COMPLETE else None


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
            book = _Book(self._store, self._optuna_storage, predicted)
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

    def _time(self, book: _Book, predicted: Predicted, entry: Entry, best: Timed | None) -> tuple[Timed, int]:
        """Times one candidate until it has enough blocks, or has lost; returns also the blocks that it took.

        Before it is given up, the best one is timed again: it may be the device that has become slower since.
        """
        number, told, lost = book.open(entry), list[float](), False

        def enough(samples: Sequence[float]) -> bool:
            nonlocal lost
            for seconds in samples[len(told) :]:
                lost = book.report(number, seconds, len(told))
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

    def _race(self, book: _Book, predicted: Predicted, timed: list[Timed], *, most: int) -> tuple[list[Timed], int]:
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


class _Book:
    """Trials of the measured study, in our tables and in Optuna's."""

    def __init__(self, store: Store, optuna_storage: optuna.storages.BaseStorage, predicted: Predicted) -> None:
        self._store = store
        self._predicted = predicted
        self._key = replace(predicted.key, evidence=Evidence.MEASURED)
        self._parameters = Parameters(predicted.space)
        self._study = store.open_study(self._key)
        self._sampler = DecidedSampler()
        self._pruner = LosingPruner()
        self._optuna = optuna.create_study(
            study_name=self._key.name,
            storage=optuna_storage,
            direction="minimize",
            sampler=self._sampler,
            pruner=self._pruner,
            load_if_exists=True,
        )
        self._reconcile()
        self._pruner.since = len(self._optuna.get_trials(deepcopy=False))
        self._open: dict[int, tuple[optuna.Trial, Trial, Entry]] = {}
        self._started = time.monotonic()
        self.name = self._key.name

    def open(self, entry: Entry) -> int:
        """Opens a trial and returns its number."""
        self._sampler.params = self._parameters.params(entry.candidate)
        asked = self._optuna.ask()
        self._parameters.suggest(asked)
        asked.set_user_attr("candidate", entry.candidate.digest)
        asked.set_user_attr("role", entry.role.value)
        known = entry.trial
        trial = Trial(
            number=asked.number,
            candidate=entry.candidate,
            state=TrialState.RUNNING,
            stage=Stage.MEASURE,
            baseline=entry.name,
            bound_s=None if known is None else known.bound_s,
            estimate_s=None if known is None else known.estimate_s,
            predicted_s=entry.predicted_s,
            placement=entry.placement,
            lowered_digest="" if known is None else known.lowered_digest,
            details={} if known is None or known.placement != entry.placement else known.details,
            host=platform.node(),
            started_at=utc_now(),
        )
        self._store.save_trials(self._study.id, [trial])
        self._open[trial.number] = asked, trial, entry
        return trial.number

    def report(self, number: int, seconds: float, block: int) -> bool:
        """Tells Optuna a timing; returns whether the trial has lost."""
        asked = self._open[number][0]
        asked.report(seconds, block)
        return asked.should_prune()

    def interrupt(self, number: int) -> None:
        """Ends a trial that was cut off."""
        asked, trial, _ = self._open.pop(number)
        interrupted = replace(trial, state=TrialState.INTERRUPTED, finished_at=utc_now())
        self._store.save_trials(self._study.id, [interrupted])
        self._optuna.tell(asked, state=OptunaState.FAIL)

    def end(self, number: int, outcome: Measured | Rejection, *, lost: bool) -> Timed:
        """Ends a trial with what came of it."""
        asked, trial, entry = self._open.pop(number)
        if isinstance(outcome, Rejection):
            trial = replace(
                trial,
                state=TrialState.REJECTED,
                rejection=outcome,
                numbers=dict(outcome.numbers),
                finished_at=utc_now(),
            )
            self._store.save_trials(self._study.id, [trial])
            asked.set_user_attr("reject_reason", outcome.reason.value)
            self._optuna.tell(asked, state=OptunaState.PRUNED)
            return Timed(entry=entry, trial=trial)
        trial = replace(_figures(trial, outcome, outcome.median_s), finished_at=utc_now())
        if lost:
            slower = _slower(outcome, len(outcome.samples_s))
            trial = replace(trial, state=TrialState.REJECTED, rejection=slower)
        self._store.save_trials(self._study.id, [trial])
        self._keep(trial, outcome)
        if lost:
            asked.set_user_attr("reject_reason", RejectReason.SLOWER.value)
            self._optuna.tell(asked, state=OptunaState.PRUNED)
        else:
            self._optuna.tell(asked, outcome.median_s)
        return Timed(entry=entry, trial=trial, measured=outcome)

    def amend(self, timed: Timed, samples_s: tuple[float, ...], place: int) -> Timed:
        """Adds a finalist's timings of the race, which from now on are its step time."""
        assert timed.measured is not None
        again = replace(timed.measured, samples_s=samples_s)
        trial = _figures(timed.trial, again, again.median_s)
        numbers = dict(trial.numbers) | {"place": float(place), "first_s": timed.measured.median_s}
        trial = replace(trial, numbers=numbers, finished_at=utc_now())
        self._store.save_trials(self._study.id, [trial])
        self._keep(trial, again)
        return replace(timed, trial=trial, measured=again)

    def close(self) -> None:
        """Notes how long the measurements took."""
        self._store.close_run(self._study.id, proved=False, spent_s=time.monotonic() - self._started)

    def _reconcile(self) -> None:
        """Ends what a killed process left open. Only who holds the slice's lease is here."""
        cut = [t for t in self._store.trials(self._study.id) if t.state is TrialState.RUNNING]
        ended = [replace(trial, state=TrialState.INTERRUPTED, finished_at=utc_now()) for trial in cut]
        if ended:
            self._store.save_trials(self._study.id, ended)
        for frozen in self._optuna.get_trials(deepcopy=False, states=(OptunaState.RUNNING,)):
            self._optuna.tell(frozen.number, state=OptunaState.FAIL)

    def _keep(self, trial: Trial, measured: Measured) -> None:
        assert trial.placement is not None
        document = measured.to_json()
        self._store.save_measurement(
            Measurement(
                source=Source.TRIAL,
                workload=self._key.workload,
                slice=self._key.slice,
                toolchain=measured.toolchain,
                candidate=trial.candidate,
                placement=trial.placement,
                device_kind=measured.device_kind,
                samples_s=measured.samples_s,
                step_s=measured.median_s,
                predicted_s=trial.predicted_s,
                count=len(measured.samples_s),
                host=measured.host,
                study=self._key.name,
                trial=trial.number,
                details={name: value for name, value in document.items() if name not in ("samples_s", "toolchain")},
            )
        )


def _figures(trial: Trial, measured: Measured, step_s: float) -> Trial:
    first, third = measured.quartiles_s
    numbers = {
        **trial.numbers,
        "samples": float(len(measured.samples_s)),
        "first_quartile_s": first,
        "third_quartile_s": third,
        "steady": float(measured.steady),
        "compile_s": measured.compile_s,
    }
    if measured.difference is not None:
        numbers["difference"] = measured.difference
    if trial.predicted_s:
        numbers["ratio"] = step_s / trial.predicted_s
    return replace(trial, state=TrialState.COMPLETE, measured_s=step_s, numbers=numbers, host=measured.host)


def _is_slower(measured: Measured, best: Measured) -> bool:
    """Returns whether the last timings of one are slower than those of another that were made right after."""
    pairs = zip(measured.samples_s[-LEAST:], best.samples_s[-LEAST:], strict=True)
    return significance([math.log(ours / theirs) for ours, theirs in pairs]) < P_VALUE


def _slower(measured: Measured, samples: int) -> Rejection:
    step_s = statistics.median(measured.samples_s)
    return Rejection(
        stage=Stage.MEASURE,
        reason=RejectReason.SLOWER,
        detail=f"{step_s * 1e3:.3g} ms over {samples} blocks: slower than the best measured (Wilcoxon)",
        numbers={"measured_s": step_s, "samples": samples},
    )
