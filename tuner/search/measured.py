"""The books of a measure stage: every candidate's timings in our tables and, beside them, in Optuna's study."""

from __future__ import annotations

import platform
import statistics
import time
from dataclasses import dataclass, replace

import optuna
from optuna.trial import TrialState as OptunaState

from tuner.layouts.space import Space
from tuner.measurements import Measurement, Source
from tuner.plans.plan import Evidence
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.ledger import utc_now
from tuner.search.losing import LosingPruner
from tuner.search.parameters import Parameters
from tuner.search.promising import Entry
from tuner.search.sampler import DecidedSampler
from tuner.stores import Store, StudyKey, Trial, TrialState
from tuner.timings import Measured


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


class Book:
    """Trials of the measured study, in our tables and in Optuna's.

    Args:
        store: ours.
        optuna_storage: that Optuna's study is in.
        predicted: key of the predicted study.
        space: of the workload.
    """

    def __init__(
        self, store: Store, optuna_storage: optuna.storages.BaseStorage, predicted: StudyKey, space: Space
    ) -> None:
        self._store = store
        self._key = replace(predicted, evidence=Evidence.MEASURED)
        self._parameters = Parameters(space)
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


def _slower(measured: Measured, samples: int) -> Rejection:
    step_s = statistics.median(measured.samples_s)
    return Rejection(
        stage=Stage.MEASURE,
        reason=RejectReason.SLOWER,
        detail=f"{step_s * 1e3:.3g} ms over {samples} blocks: slower than the best measured (Wilcoxon)",
        numbers={"measured_s": step_s, "samples": samples},
    )
