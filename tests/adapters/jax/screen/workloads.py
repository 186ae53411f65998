"""Workloads for the pool: one that is well, and ways to be ill."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from adapters.jax.step import Step
from tuner.layouts.layout import Layout
from tuner.layouts.space import Choice, Dimension, Space
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

_SPACE = Space(
    dimensions=(Dimension(name="data", sizes=(1, 2, 3, 4, 8)),),
    options=(Choice(name="ill", values=("no", "abort", "sleep", "raise", "duplicate")),),
    tuned=(Choice(name="blocks", values=("128,128,128", "256,128,128")),),
)


@dataclass(frozen=True)
class Patient:
    """Doubles an array of 24 rows."""

    name: str = "patient@24"
    space: Space = _SPACE

    @property
    def source(self) -> str:
        return ""

    @property
    def identity(self) -> Mapping[str, str]:
        return {"model": "patient"}

    @property
    def spec(self) -> WorkloadSpec:
        return WorkloadSpec(model=f"{__name__}:patient")

    def verdict(self, layout: Layout) -> Rejection | None:
        return None

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        return {}

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        return ()

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        match layout.option("ill"):
            case "abort":
                os.abort()
            case "sleep":
                time.sleep(600)
            case "raise":
                raise ValueError("ill\non purpose")
            case "duplicate":
                sharding = NamedSharding(mesh, PartitionSpec("data", "data"))
            case _:
                sharding = NamedSharding(mesh, PartitionSpec("data"))
        x: Any = jax.ShapeDtypeStruct((24, 24), jnp.float32, sharding=sharding)
        return Step(function=_double, arguments=({"latents": {"x": x}},), out_shardings=sharding)


def _double(inputs: Any) -> jax.Array:
    doubled: jax.Array = 2 * inputs["latents"]["x"]
    return doubled


patient = Patient()


def broken() -> Patient:
    raise ValueError("this workload cannot be built")
