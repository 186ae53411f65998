"""The measure stage with devices that are made up: which plan comes of it, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import optuna
import pytest

from tests.tuner.search.noise import noisy
from tests.tuner.search.test_funnel import EXHAUSTIVE, SLICE, TOOLCHAIN, Bench
from tuner.heartbeat import Heartbeat
from tuner.layouts.layout import Candidate
from tuner.measurements import Source
from tuner.placements.placement import Placement
from tuner.plans.plan import Evidence
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.measure import COMPARED, MeasureStage, Measuring
from tuner.search.outcome import Outcome
from tuner.search.recorded import RecordedRunner, Recording
from tuner.slices.slice import Slice
from tuner.stores import TrialState
from tuner.timings import Measured

WRONG = Rejection(stage=Stage.MEASURE, reason=RejectReason.WRONG_RESULT, detail="it computes something else")


def by_tensor(candidate: Candidate) -> float:
    """A device that differs from the model: the more tensor parallelism, the faster."""
    return 1.0 / candidate.layout.size("tensor") + 0.01 * (candidate.layout.option("weights") == "data")


def by_data(candidate: Candidate) -> float:
    """A device that agrees with the model: the less tensor parallelism, the faster."""
    return candidate.layout.size("tensor") + 0.01 * (candidate.layout.option("weights") == "data")


@dataclass
class Device:
    """Times candidates by a truth of its own, with noise; some of them compute something else."""

    truth: Callable[[Candidate], float] = by_tensor
    wrong: Callable[[Candidate], bool] = lambda candidate: False
    asked: list[str] = field(default_factory=list)

    def measure(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        *,
        enough: Callable[[Sequence[float]], bool],
    ) -> Measured | Rejection:
        self.asked.append(str(candidate.layout))
        if self.wrong(candidate):
            return WRONG
        time = noisy([self.truth(candidate)], seed=len(self.asked))
        samples: list[float] = []
        while not samples or not enough(tuple(samples)):
            samples.append(time(0))
        return Measured(
            samples_s=tuple(samples),
            steps=1,
            warmup=3,
            device_kind="TPU v5 lite",
            devices=8,
            host="a-tpu",
            toolchain=TOOLCHAIN,
            difference=1e-4,
        )


def stage(bench: Bench, device: object, **changes: object) -> MeasureStage:
    arguments = {"runner": device, "store": bench.store, "optuna_storage": bench.optuna, "sleep": lambda s: None}
    return MeasureStage(**arguments | changes)  # type: ignore[arg-type]


def tuned(bench: Bench, device: object, **changes: object) -> Outcome:
    measure = stage(bench, device, most=20, **changes).run

    def everything(predicted):  # type: ignore[no-untyped-def]
        return measure(replace(predicted, error=10.0))

    return bench.search(EXHAUSTIVE, measure=everything).run()


def test_measured_outranks_predicted() -> None:
    bench = Bench()
    outcome = tuned(bench, Device())
    assert outcome.plan is not None
    plan = outcome.plan.plan
    assert plan.evidence is Evidence.MEASURED
    best = min(outcome.trials, key=lambda trial: by_tensor(trial.candidate))
    assert plan.candidate.layout.size("tensor") == best.candidate.layout.size("tensor")
    assert plan.candidate != outcome.trials[0].candidate  # which the model held for the best
    assert plan.measured_s == pytest.approx(by_tensor(plan.candidate), rel=0.03)
    assert plan.ratio == pytest.approx(plan.step_s / plan.predicted_s)
    assert plan.measurement["host"] == "a-tpu"
    assert not plan.proved
    document = plan.to_json()
    assert (document["measured_s"], document["predicted_s"]) == (plan.measured_s, plan.predicted_s)


def test_every_candidate_is_a_trial_of_the_measured_study_with_predicted_and_measured() -> None:
    bench = Bench()
    outcome = tuned(bench, Device())
    assert outcome.measured is not None
    study = next(study for study in bench.store.studies() if study.key.evidence is Evidence.MEASURED)
    assert study.key.name == outcome.measured.study
    trials = bench.store.trials(study.id)
    assert len(trials) == len(outcome.measured.timed)
    assert {trial.stage for trial in trials} == {Stage.MEASURE}
    for trial in trials:
        assert trial.predicted_s is not None
        assert trial.measured_s is not None
        assert trial.numbers["ratio"] == pytest.approx(trial.measured_s / trial.predicted_s)
    rows = bench.store.measurements(source=Source.TRIAL, study=study.key.name)
    assert {row.trial for row in rows} == {trial.number for trial in trials}
    assert all(row.samples_s and row.device_kind == "TPU v5 lite" for row in rows)


def test_what_has_lost_is_stopped_early_and_optuna_knows() -> None:
    bench = Bench()
    outcome = tuned(bench, Device(truth=by_data))
    assert outcome.measured is not None
    stopped = [t.trial for t in outcome.measured.timed if t.trial.state is TrialState.REJECTED]
    assert stopped
    assert {trial.rejection and trial.rejection.reason for trial in stopped} == {RejectReason.SLOWER}
    assert all(trial.numbers["samples"] < 8 for trial in stopped)
    assert all(t.step_s for t in outcome.measured.timed if t.entry.role in COMPARED)  # these are timed to the end
    theirs = optuna.load_study(study_name=outcome.measured.study, storage=bench.optuna).get_trials(deepcopy=False)
    assert [trial.state for trial in theirs].count(optuna.trial.TrialState.PRUNED) == len(stopped)
    assert all(trial.intermediate_values for trial in theirs)


def test_what_computes_something_else_never_becomes_a_plan() -> None:
    bench = Bench()
    fastest = tuned(Bench(), Device()).plan
    assert fastest is not None
    wrong = fastest.plan.candidate
    outcome = tuned(bench, Device(wrong=lambda candidate: candidate == wrong))
    assert outcome.plan is not None
    assert outcome.plan.plan.candidate != wrong
    everything = tuned(Bench(), Device(wrong=lambda candidate: True))
    assert everything.plan is None
    again = bench.search(EXHAUSTIVE).run()  # without devices: what was found out stays found out
    assert again.plan is not None
    assert again.plan.plan.candidate != wrong


def test_a_plan_in_service_that_turns_out_wrong_is_retired() -> None:
    bench = Bench()
    served = bench.search(EXHAUSTIVE).run().plan
    assert served is not None
    outcome = tuned(bench, Device(wrong=lambda candidate: True))
    assert outcome.plan is None
    assert "something else" in bench.store.plan(served.id).note


def test_a_measured_plan_replaces_a_predicted_one_only_when_both_ran() -> None:
    bench = Bench()
    served = bench.search(EXHAUSTIVE).run().plan
    assert served is not None
    assert served.plan.evidence is Evidence.PREDICTED
    outcome = tuned(bench, Device())
    assert outcome.measured is not None
    assert outcome.measured.incumbent is not None
    assert outcome.promoted
    assert outcome.plan is not None
    assert "measured in the same run" in outcome.plan.note or "lost where both were run" in outcome.plan.note


def test_a_predicted_plan_never_replaces_a_measured_one() -> None:
    bench = Bench()
    measured = tuned(bench, Device()).plan
    later = bench.search(EXHAUSTIVE).run()
    assert (later.plan, later.promoted) == (measured, False)


def test_a_device_that_becomes_slower_ends_no_trial_that_is_as_fast() -> None:
    """Before a trial is given up, the best one is timed again; who was wronged meets it in the race."""
    device = Device()

    def drifting(candidate: Candidate) -> float:
        # From the second candidate on, everything takes twice as long.
        return by_data(candidate) * (1.0 if len(device.asked) == 1 else 2.0)

    device.truth = drifting
    outcome = tuned(Bench(), device)
    assert outcome.measured is not None
    assert any(timed.contested for timed in outcome.measured.timed)
    assert outcome.plan is not None
    best = min(outcome.trials, key=lambda trial: by_data(trial.candidate))
    assert outcome.plan.plan.candidate.layout.size("tensor") == best.candidate.layout.size("tensor")
    slower = [timed for timed in outcome.measured.timed if timed.trial.state is TrialState.REJECTED]
    assert slower  # those that are slower beside the best one are given up all the same


def test_one_process_at_a_time_measures_on_a_slice() -> None:
    bench = Bench()
    with Heartbeat(bench.store) as other:
        assert other.claim(f"measure/{SLICE.name}") is not None
        ticks = iter(range(10_000))
        with pytest.raises(Measuring, match=f"holds measure/{SLICE.name}"):
            tuned(bench, Device(), clock=lambda: float(next(ticks)), wait_s=5.0)
    assert tuned(bench, Device()).measured is not None
    assert not [lease for lease in bench.store.leases() if lease.resource.startswith("measure/")]


def test_an_interrupt_leaves_the_trial_interrupted_and_the_rest_stored() -> None:
    bench = Bench()
    device = Device()

    def interrupted(candidate: Candidate) -> float:
        if len(device.asked) == 3:
            raise KeyboardInterrupt
        return by_tensor(candidate)

    device.truth = interrupted
    outcome = tuned(bench, device)
    assert outcome.interrupted
    study = next(study for study in bench.store.studies() if study.key.evidence is Evidence.MEASURED)
    states = [trial.state for trial in bench.store.trials(study.id)]
    assert states[2:] == [TrialState.INTERRUPTED]
    assert not [lease for lease in bench.store.leases() if lease.resource.startswith("measure/")]


def test_a_recording_of_a_run_replays_to_the_same_plan() -> None:
    bench = Bench()
    first = tuned(bench, Device())
    assert first.plan is not None
    assert first.measured is not None
    recording = Recording.of(bench.store.measurements(study=first.measured.study))
    again = tuned(Bench(), RecordedRunner(recording, TOOLCHAIN))
    assert again.plan is not None
    assert again.plan.plan.candidate.layout.size("tensor") == first.plan.plan.candidate.layout.size("tensor")
