"""What a device was seen to take for a program: the raw rows that constants are fitted to.

Every row is a program and its placement, whether it is one all-reduce, one matrix product or a whole step that a trial
or a service ran. So one model predicts all of them, and there is nothing to keep in step with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tuner.errors import InvalidValue
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.program import serial
from tuner.program.program import Program
from tuner.slices.slice import Slice


class Origin(StrEnum):
    """Where a row comes from. Values are stored: only add, never remove."""

    BENCHMARK = "benchmark"  # `meshwright calibrate`
    TRIAL = "trial"  # a search timed the step
    PRODUCTION = "production"  # a service reported the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One program, timed.

    Attributes:
        what: what it exercises, for example ``all-reduce``, ``shared-link``, ``matmul``, ``copy``, ``attention`` or
            ``step``; rows of one word are compared with each other.
        name: says it in full, for people: ``all-reduce of 4 along x, 1 MiB``.
        slice: the devices.
        program: what ran, as compiled.
        placement: which device sat at each logical id.
        links: slow links of the slice, each as ``0,0:1,0=0.5``.
        samples_s: seconds of single executions, at least one.
        origin: who timed it.
        device_kind: as JAX names the devices.
        host: that timed it.
        toolchain: that compiled it.
        observed_at: when, aware.
    """

    what: str
    name: str
    slice: Slice
    program: Program
    placement: Placement
    links: tuple[str, ...] = ()
    samples_s: tuple[float, ...]
    origin: Origin
    device_kind: str
    host: str
    toolchain: Toolchain
    observed_at: datetime

    def __post_init__(self) -> None:
        if not self.samples_s or not all(0 < sample < float("inf") for sample in self.samples_s):
            raise InvalidValue(f"{self.name!r} has samples {self.samples_s}; one or more finite seconds are legal")
        devices = len(self.placement.devices)
        if not self.program.devices == devices == self.slice.num_devices:
            raise InvalidValue(
                f"{self.name!r}: a program for {self.program.devices} devices and a placement of {devices} do not fit "
                f"{self.slice.name} ({self.slice.num_devices} devices)"
            )
        if self.observed_at.tzinfo is None:
            raise InvalidValue(f"{self.name!r} was observed at {self.observed_at}, a time without a zone")

    @property
    def seconds(self) -> float:
        """The median sample."""
        return statistics.median(self.samples_s)

    @property
    def spread(self) -> float:
        """Standard error of the median as a share of it, from the quartiles; 0 with fewer than four samples.

        1.2533 is the efficiency of a median, 1.349 the distance of a normal distribution's quartiles.
        """
        if len(self.samples_s) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.samples_s, n=4)
        return 1.2533 * (high - low) / 1.349 / math.sqrt(len(self.samples_s)) / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document of what is not a column: the program, where it ran, and its toolchain."""
        return {
            "program": serial.to_json(self.program),
            "placement": self.placement.to_json(self.slice),
            "slice": {
                "generation": self.slice.generation_name,
                "shape": list(self.slice.shape),
                "wrap": list(self.slice.wrap),
                "twisted": self.slice.twisted,
            },
            "links": list(self.links),
            "toolchain": self.toolchain.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], **columns: Any) -> Observation:
        """Reads what `to_json` wrote; the other attributes are given."""
        where = document["slice"]
        slice_ = Slice(
            generation_name=where["generation"],
            shape=tuple(where["shape"]),
            wrap=tuple(where["wrap"]),
            twisted=where["twisted"],
        )
        return cls(
            slice=slice_,
            program=serial.from_json(document["program"]),
            placement=Placement.from_json(document["placement"], slice_),
            links=tuple(document["links"]),
            toolchain=Toolchain.from_json(document["toolchain"]),
            **columns,
        )
