"""Time on devices is a budget: what is left out, and that the rest is in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.tuner.search.test_funnel import EXHAUSTIVE, TOOLCHAIN, Bench
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.ports import WorkloadSpec
from tuner.search.measure import MeasuredOutcome, MeasureStage, Predicted
from tuner.slices.slice import Slice
from tuner.timings import Measured


class Devices:
    """Devices on which every call takes ten seconds of a clock of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0

    def measure(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        *,
        enough: Callable[[Sequence[float]], bool],
    ) -> Measured:
        self.asked += 1
        self.now += 10.0
        samples: list[float] = []
        while not samples or not enough(samples):
            samples.append(0.1 + candidate.layout.size("tensor") / 100)
        return Measured(
            samples_s=tuple(samples),
            steps=1,
            warmup=1,
            device_kind="TPU v5 lite",
            devices=slice_.num_devices,
            host="here",
            toolchain=TOOLCHAIN,
        )


def run(budget_s: float | None) -> tuple[Devices, MeasuredOutcome]:
    bench, devices, found = Bench(), Devices(), []

    def measure(predicted: Predicted) -> MeasuredOutcome:
        stage = MeasureStage(
            runner=devices,
            store=bench.store,
            optuna_storage=bench.optuna,
            budget_s=budget_s,
            clock=lambda: devices.now,
        )
        found.append(stage.run(predicted))
        return found[0]

    bench.run(EXHAUSTIVE, measure=measure)
    return devices, found[0]


def test_without_a_budget_everything_promising_is_timed_and_raced() -> None:
    devices, outcome = run(None)
    assert outcome.left_out == 0
    assert devices.asked > len(outcome.timed)  # the race asks again
    assert outcome.device_s == pytest.approx(10.0 * devices.asked)


def test_a_budget_ends_it_and_what_was_timed_counts() -> None:
    everything = len(run(None)[1].timed)
    devices, outcome = run(15.0)
    assert devices.asked == len(outcome.timed) == 2  # none is begun after 15 s, and no race
    assert outcome.left_out == everything - 2
    assert outcome.device_s == 20.0
    steps = [timed.step_s for timed in outcome.timed if timed.step_s is not None]
    assert steps == sorted(steps)
    assert outcome.best is not None
