"""Synthetic machines: they take what the model says under constants of their own, and differ from it where told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from tuner.calibration.calibration import Calibration, calibration
from tuner.calibration.observation import Observation, Origin
from tuner.calibration.outlook import Outlook
from tuner.calibration.suite import suite
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.program.program import Compute, ComputeKind, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TOOLCHAIN = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")
FLOORS = {"all-reduce": 9e-6, "all-gather": 3e-6, "reduce-scatter": 7e-6, "all-to-all": 1.2e-5}

Seconds = Callable[[Observation, Calibration], float]
Noise = Callable[[np.random.Generator, int], np.ndarray]


def truth(generation: str) -> Calibration:
    """Constants that are none of the shipped ones."""
    return replace(
        calibration(generation),
        link_efficiency=0.8,
        hop_s=1.6e-6,
        launches=tuple(sorted({**FLOORS, "collective-permute": 2.5e-6}.items())),
        shared_link_efficiency=0.7,
        hbm_efficiency=0.75,
        matmul_efficiency=0.8,
        attention_efficiency=0.85,
    )


def as_modelled(observation: Observation, constants: Calibration) -> float:
    return Outlook(observation).seconds(constants)


def kindly_routed(observation: Observation, constants: Calibration) -> float:
    """A machine that routes each collective in the order of axes that suits it best; the model takes the worst."""
    layout = Layout.of({"devices": observation.slice.num_devices}, {})
    ranker = Ranker(observation.program, observation.slice, layout, constants)
    devices = np.asarray([observation.placement.devices])
    transfers = ranker._transfers(devices)
    if not transfers:
        return as_modelled(observation, constants)
    return float(sum(transfer.alone_s.min() for transfer in transfers))


def floored(observation: Observation, constants: Calibration) -> float:
    """A machine on which nothing takes less than 60 us."""
    return max(as_modelled(observation, constants), 6e-5)


def delayed(observation: Observation, constants: Calibration) -> float:
    """A machine that takes 100 us more for everything."""
    return as_modelled(observation, constants) + 1e-4


def quiet(dice: np.random.Generator, count: int) -> np.ndarray:
    """3 %, lognormal."""
    return np.exp(0.03 * dice.standard_normal(count))


def jittery(dice: np.random.Generator, count: int) -> np.ndarray:
    """10 %, and one execution in six takes half as long again."""
    return np.exp(0.1 * dice.standard_normal(count)) * np.where(dice.random(count) < 1 / 6, 1.5, 1.0)


def observed(
    slice_: Slice,
    constants: Calibration,
    *,
    seed: int = 0,
    seconds: Seconds = as_modelled,
    noise: Noise = quiet,
    samples: int = 1,
) -> list[Observation]:
    """Times the whole suite on a machine."""
    dice = np.random.default_rng(seed)
    rows = []
    for benchmark in suite(slice_):
        node = benchmark.node
        if isinstance(node, Compute) and node.kind is ComputeKind.MATMUL:
            # What the compiler would say.
            generation = slice_.generation
            node = replace(node, cycles=int(1.05 * node.flops / generation.peak_flops * generation.clock_hz))
        row = Observation(
            what=benchmark.what,
            name=benchmark.name,
            slice=slice_,
            program=Program(devices=slice_.num_devices, schedule=(node,)),
            placement=Placement(devices=tuple(range(slice_.num_devices))),
            samples_s=(1.0,),
            origin=Origin.BENCHMARK,
            device_kind=slice_.generation.device_kinds[0],
            host="synthetic",
            toolchain=TOOLCHAIN,
            observed_at=NOW,
        )
        time_s = seconds(row, constants)
        rows.append(replace(row, samples_s=tuple((time_s * noise(dice, samples)).tolist())))
    return rows
