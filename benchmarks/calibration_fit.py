"""Fits to synthetic machines: how near the constants are, and what happens where the machine is not the model.

    python benchmarks/calibration_fit.py [SLICE ...]

No device is timed: each machine takes what the model says under constants of its own, with noise, and differs from the
model as its line says. Errors are means over the kinds of rows that were held back from the fit.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.tuner.calibration import machines
from tuner.calibration.calibration import Calibration, calibration
from tuner.calibration.dials import dials
from tuner.calibration.fit import fit
from tuner.calibration.observation import Observation
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice


def line(machine: str, slice_: Slice, rows: list[Observation], known: Calibration | None) -> None:
    start = calibration(slice_.generation_name)
    began = time.perf_counter()
    found = fit(rows, start, now=machines.NOW)
    took = time.perf_counter() - began
    worst = ""
    if known is not None:
        turned = {dial.name: dial for dial in dials(start, [row.program for row in rows])}
        errors = {each.name: each.after / turned[each.name].read(known) - 1 for each in found.constants}
        name = max(errors, key=lambda each: abs(errors[each]))
        worst = f"; worst of {len(errors)} constants {name} {errors[name]:+.1%}"
    verdict = "used" if found.used else f"declined ({found.reason})"
    print(
        f"{slice_.name:10} {machine:34} {found.rows} rows, {took:4.1f} s: error {found.error_before:6.1%} -> "
        f"{found.error_after:6.1%}, {verdict}{worst}",
        flush=True,
    )


def main(names: list[str]) -> None:
    for slice_ in map(parse_slice, names):
        truth, shipped = machines.truth(slice_.generation_name), calibration(slice_.generation_name)
        for seed in range(3):
            rows = machines.observed(slice_, truth, seed=seed, samples=9)
            line(f"like the model, 3 % noise, seed {seed}", slice_, rows, truth)
        line("one sample for each row", slice_, machines.observed(slice_, truth), truth)
        line("routes kindly", slice_, machines.observed(slice_, truth, seconds=machines.kindly_routed), None)
        line("jitters, one in six half again", slice_, machines.observed(slice_, truth, noise=machines.jittery), None)
        line("nothing below 60 us", slice_, machines.observed(slice_, truth, seconds=machines.floored), None)
        line("100 us more for everything", slice_, machines.observed(slice_, truth, seconds=machines.delayed), None)
        line("the shipped constants", slice_, machines.observed(slice_, shipped, samples=9), shipped)


if __name__ == "__main__":
    main(sys.argv[1:] or ["v5e-2x4"])
