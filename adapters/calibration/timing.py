"""One benchmark on devices: compiled, repeated often enough to be timed, and timed."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from adapters.calibration.programs import layout_of, step
from adapters.jax.compile import memory_of, platform
from adapters.jax.hlo.read import read_program
from adapters.jax.inputs import filler
from adapters.jax.live import place_on
from adapters.jax.topologies import auto_mesh
from tuner.calibration.calibration import calibration
from tuner.calibration.suite import Benchmark
from tuner.placements.placement import Placement
from tuner.program.program import Collective, Loop, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

CALL_S = 0.02
"""Length of one timed call, beside which the wait for the device is short."""

MOST_REPEATS = 4096
SAMPLES = 9
WARMUP = 2


def compiled(benchmark: Benchmark, slice_: Slice, devices: list[Any], repeats: int) -> tuple[Any, Program]:
    """Compiles a benchmark and returns the executable with the program that it runs.

    Args:
        benchmark: what to repeat.
        slice_: the devices' slice.
        devices: of the slice, in the order of its device indices.
        repeats: repetitions in one call, an even number.
    """
    layout, placement = layout_of(benchmark, slice_)
    mesh = auto_mesh([devices[index] for index in placement.devices], layout)
    run = step(benchmark, mesh, repeats).lower(platform(slice_)).compile()
    if not slice_.generation.has_links:
        # What XLA makes of it for a CPU says little: the operation alone is what the model can predict there.
        return run, Program(devices=slice_.num_devices, schedule=(_repeated(benchmark, repeats),))
    return run, read_program(run.as_text(), slice_.num_devices, memory_of(run))


def timed(benchmark: Benchmark, slice_: Slice) -> tuple[Program, Placement, tuple[float, ...]]:
    """Times a benchmark on the attached devices and returns its program, its placement and seconds of single calls.

    Raises WrongDevices if the attached devices are not the slice.
    """
    layout, placement = layout_of(benchmark, slice_)
    devices = list(place_on(jax.devices(), slice_, range(slice_.num_devices)))
    repeats = _repeats(benchmark, slice_)
    run, program = compiled(benchmark, slice_, devices, repeats)
    mesh = auto_mesh([devices[index] for index in placement.devices], layout)
    arguments = filler(step(benchmark, mesh, repeats).arguments)()
    samples = []
    for _ in range(WARMUP + SAMPLES):
        started = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        samples.append(time.perf_counter() - started)
    return program, placement, tuple(samples[WARMUP:])


def _repeats(benchmark: Benchmark, slice_: Slice) -> int:
    """Returns the repetitions that fill a call, by what the shipped model expects."""
    layout = layout_of(benchmark, slice_)[0]
    ranker = Ranker(benchmark.program(slice_), slice_, layout, calibration(slice_.generation_name))
    once_s = float(ranker.step_s(np.arange(slice_.num_devices)[None])[0])
    if not 0 < once_s < math.inf:
        return 2
    return min(MOST_REPEATS, 2 * math.ceil(CALL_S / once_s / 2))


def _repeated(benchmark: Benchmark, repeats: int) -> Loop:
    node = benchmark.node
    if isinstance(node, Collective) and node.groups:  # logical ids follow the mesh, not the slice
        size = len(node.groups[0])
        starts = range(0, size * len(node.groups), size)
        node = replace(node, groups=tuple(tuple(range(start, start + size)) for start in starts))
    return Loop(name="repeats", trips=repeats, body=(node,))
