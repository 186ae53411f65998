"""What devices took, as a store keeps it: raw samples with everything that says what they are samples of."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.slices.slice import Slice


class Source(StrEnum):
    """Who timed. Values are stored: only add, never remove."""

    TRIAL = "trial"  # a runner of ours, which checked the answer before
    PRODUCTION = "production"  # a deployment; shown beside predictions and fitted to, and never a reason to promote


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Timings of one step.

    Attributes:
        source: who timed.
        workload, slice: what was run, where.
        toolchain: that compiled it.
        candidate, placement: how it was laid out.
        device_kind: what JAX calls the devices; ``cpu`` is never a TPU.
        samples_s: seconds of a step.
        step_s: what they come to: their median, or what production states.
        predicted_s: of this candidate in this placement; None without a prediction.
        count: samples that `step_s` rests on; at least as many as are kept in `samples_s`.
        host: that kept the time.
        study, trial: of a trial, the measured study's name and the number in it.
        plan_id: of a production report, the stored plan.
        details: the rest of what is known, JSON values.
        observed_at: aware, in UTC; None for the moment of storing.
        id: in the store; 0 until it is there.
    """

    source: Source
    workload: WorkloadKey
    slice: Slice
    toolchain: Toolchain
    candidate: Candidate
    placement: Placement
    device_kind: str
    step_s: float
    samples_s: tuple[float, ...] = ()
    predicted_s: float | None = None
    count: int = 1
    host: str = ""
    study: str = ""
    trial: int = -1
    plan_id: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    observed_at: datetime | None = None
    id: int = 0

    def __post_init__(self) -> None:
        for seconds in (self.step_s, *self.samples_s):
            if not 0 < seconds < float("inf"):
                raise InvalidValue(f"a step of {seconds} s; finite times above 0 s are legal")
        if self.count < max(1, len(self.samples_s)):
            raise InvalidValue(f"{self.count} samples, of which {len(self.samples_s)} are kept; at least 1, and those")
        if self.observed_at is not None and self.observed_at.tzinfo is None:
            raise InvalidValue("a measurement's observed_at must be aware, in UTC")
        on_cpu, cpu_slice = self.device_kind == "cpu", not self.slice.generation.has_links
        if on_cpu != cpu_slice:
            raise InvalidValue(f"times of {self.device_kind!r} devices are not times of {self.slice.name}")

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None without a prediction."""
        return None if not self.predicted_s else self.step_s / self.predicted_s

    def document(self) -> dict[str, Any]:
        """Returns a JSON document of what was run, and under what."""
        return {
            "workload": self.workload.to_json(),
            "slice": {
                "generation": self.slice.generation_name,
                "shape": list(self.slice.shape),
                "wrap": list(self.slice.wrap),
                "twisted": self.slice.twisted,
            },
            "toolchain": self.toolchain.to_json(),
            "candidate": self.candidate.to_json(),
            "placement": self.placement.to_json(self.slice),
            "details": dict(self.details),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any], **figures: Any) -> Measurement:
        """Reads what `document` wrote, with the other fields by name."""
        where = document["slice"]
        slice_ = Slice(
            generation_name=where["generation"],
            shape=tuple(where["shape"]),
            wrap=tuple(map(bool, where["wrap"])),
            twisted=bool(where["twisted"]),
        )
        return cls(
            workload=WorkloadKey.from_json(document["workload"]),
            slice=slice_,
            toolchain=Toolchain.from_json(document["toolchain"]),
            candidate=Candidate.from_json(document["candidate"]),
            placement=Placement.from_json(document["placement"], slice_),
            details=document["details"],
            **figures,
        )


class MeasurementStore(abc.ABC):
    """Measurements. They are only ever added."""

    @abc.abstractmethod
    def save_measurement(self, measurement: Measurement) -> Measurement:
        """Stores a measurement and returns it with its id and time."""

    @abc.abstractmethod
    def measurements(
        self,
        *,
        source: Source | None = None,
        plan_id: int | None = None,
        study: str | None = None,
        slice_name: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Measurement]:
        """Returns the measurements that have all that is asked for, newest first."""
