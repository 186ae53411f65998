"""Fits: from a machine like the model, its constants; from another one, better predictions or none at all."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.calibration.machines import (
    NOW,
    TOOLCHAIN,
    delayed,
    floored,
    jittery,
    kindly_routed,
    observed,
    truth,
)
from tuner.calibration.calibration import calibration
from tuner.calibration.dials import dials
from tuner.calibration.fit import GAIN, WORSE, fit
from tuner.calibration.fitted import Fit
from tuner.calibration.observation import Origin
from tuner.calibration.outlook import Outlook
from tuner.calibration.suite import SHARED, suite
from tuner.errors import InvalidValue
from tuner.program.program import Loop, Program
from tuner.slices.names import parse_slice

SLICE = parse_slice("v5e-2x4")
SMALL = parse_slice("v5e-2x2")
START = calibration("v5e")


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit(observed(SLICE, truth("v5e"), samples=5), START, now=NOW)


def test_the_constants_of_a_machine_are_recovered_within_5_percent(fitted: Fit) -> None:
    known = {dial.name: dial.read(truth("v5e")) for dial in dials(START, [b.program(SLICE) for b in suite(SLICE)])}
    assert {constant.name for constant in fitted.constants} == known.keys()
    for constant in fitted.constants:
        assert constant.after == pytest.approx(known[constant.name], rel=0.05), constant
        assert abs(np.log(constant.after / known[constant.name])) < 4 * constant.uncertainty, constant


def test_rows_that_were_held_back_are_predicted_better(fitted: Fit) -> None:
    assert fitted.used
    assert fitted.error_after < 0.03 < 0.2 < fitted.error_before
    assert {each.what for each in fitted.held_back} >= {"all-reduce", "all-to-all", SHARED, "matmul", "attention"}
    assert sum(each.rows for each in fitted.held_back) == fitted.rows
    assert f"{fitted.error_before:.1%}" in fitted.reason


def test_a_fit_survives_json(fitted: Fit) -> None:
    assert Fit.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False))) == fitted


def test_fitted_constants_are_another_revision_of_the_model(fitted: Fit) -> None:
    assert fitted.calibration.digest != START.digest
    assert fitted.calibration.relative_error < START.relative_error


@pytest.mark.parametrize("seconds", [kindly_routed, floored, delayed])
def test_a_machine_that_is_not_the_model_is_predicted_better_or_not_at_all(seconds) -> None:
    found = fit(
        observed(SMALL if seconds is not kindly_routed else SLICE, truth("v5e"), seconds=seconds), START, now=NOW
    )
    check(found)


def test_jitter_and_outliers_are_borne() -> None:
    found = fit(observed(SMALL, truth("v5e"), noise=jittery, samples=9), START, now=NOW)
    check(found)
    assert found.used
    assert found.error_after < found.error_before / 2


def check(found: Fit) -> None:
    if not found.used:
        assert found.reason
        return
    assert found.error_after <= found.error_before * (1 - GAIN)
    for each in found.held_back:
        assert each.after <= each.before + WORSE + each.before / 10


def test_noise_alone_is_no_ground_for_new_constants() -> None:
    def wild(dice: np.random.Generator, count: int) -> np.ndarray:
        return np.exp(dice.standard_normal()) * np.ones(count)

    found = fit(observed(SMALL, START, noise=wild, samples=5), START, now=NOW)
    assert not found.used


def test_a_machine_that_is_the_shipped_model_keeps_it() -> None:
    found = fit(observed(SMALL, START, samples=5), START, now=NOW)
    for constant in found.constants:
        assert constant.after == pytest.approx(constant.before, rel=0.1)


def test_whole_steps_speak_about_the_same_constants() -> None:
    machine = replace(START, link_efficiency=0.6, hbm_efficiency=0.7)
    rows = observed(SLICE, machine, samples=5)
    parts = [row.program.schedule[0] for row in rows]
    steps = []
    for number in range(12):
        body = tuple(parts[at] for at in range(number, len(parts), 12))
        program = Program(devices=8, schedule=(Loop(name="layers", trips=5, body=body),))
        step = replace(rows[0], what="step", name=f"step {number}", program=program, origin=Origin.TRIAL)
        steps.append(replace(step, samples_s=(Outlook(step).seconds(machine),)))
    found = fit(steps, START, now=NOW)
    assert found.used
    named = {constant.name: constant.after for constant in found.constants}
    assert named["link_efficiency"] == pytest.approx(0.6, rel=0.1)
    assert found.held_back[0].after < found.held_back[0].before / 2


def test_few_rows_are_no_ground_for_a_fit() -> None:
    found = fit(observed(SMALL, truth("v5e"))[:5], START, now=NOW)
    assert not found.used
    assert "5 rows" in found.reason
    assert found.calibration == START


def test_rows_of_several_kinds_of_machine_are_refused() -> None:
    rows = observed(SMALL, START)
    with pytest.raises(InvalidValue, match="no observations"):
        fit([], START, now=NOW)
    with pytest.raises(InvalidValue, match="v6e"):
        fit(rows, calibration("v6e"), now=NOW)
    other = replace(rows[0], toolchain=replace(TOOLCHAIN, libtpu="0.0.51"))
    with pytest.raises(InvalidValue, match="several toolchains"):
        fit([*rows, other], START, now=NOW)


@pytest.mark.parametrize("name", ["v5e-2x2", "v5e-4x8", "v6e-2x4", "v5p-2x2x1", "v7x-2x2x1", "cpu-8"])
def test_the_suite_covers_what_a_slice_can_do(name: str) -> None:
    slice_ = parse_slice(name)
    benchmarks = suite(slice_)
    assert len({benchmark.name for benchmark in benchmarks}) == len(benchmarks)
    kinds = {benchmark.what for benchmark in benchmarks}
    assert {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "matmul", "memory"} <= kinds
    assert ("attention" in kinds) is (name != "cpu-8")
    assert (SHARED in kinds) is (max(slice_.shape) >= 4 and slice_.generation.has_links)
    for benchmark in benchmarks:
        assert benchmark.program(slice_).devices == slice_.num_devices
