"""A plan: a layout, a placement and compiler options with their evidence. What a deploy applies.

A plan stores decisions (sizes, shardings, coordinates, options), never an executable: it is applied again under
whatever compiler is there, and says under which it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import ArgumentSharding
from tuner.slices.slice import Slice

SCHEMA_VERSION = 1


class Evidence(StrEnum):
    """What a step time rests on. Values are stored: only add, never remove. Comparisons stay within one kind."""

    BOUND = "bound"
    PREDICTED = "predicted"
    MEASURED = "measured"


class PlanState(StrEnum):
    """State of a stored version. Values are stored: only add, never remove."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What a plan had to respect.

    Attributes:
        objective: what is small in a good plan.
        reserve_hbm_bytes: HBM kept free for other residents of the chip.
        links: links that do not run at their full rate, each as ``0,0:1,0=0.5`` (`tuner.network.cost.Degraded`).
    """

    objective: str = "step-latency"
    reserve_hbm_bytes: int = 0
    links: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", tuple(sorted(self.links)))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        links = {"links": list(self.links)} if self.links else {}
        return {"objective": self.objective, "reserve_hbm_bytes": self.reserve_hbm_bytes, **links}

    @property
    def purpose(self) -> str:
        """What two plans must share for one to serve in the other's place: the objective and the links, shortened."""
        return f"{self.objective} {digest(list(self.links))[:12]}" if self.links else self.objective

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return digest(self.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How a baseline does in the same model, under the same evidence.

    Attributes:
        name: ``A`` (what people deploy) or ``B`` (fewest received bytes), default device order both.
        step_s: None if the baseline does not run; `reason` then says why.
        best_placement_step_s: the baseline's layout in its best placement: what layout alone does not gain.
    """

    name: str
    layout: str
    step_s: float | None
    best_placement_step_s: float | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "name": self.name,
            "layout": self.layout,
            "step_s": self.step_s,
            "best_placement_step_s": self.best_placement_step_s,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan as the search made it.

    Attributes:
        workload: what it is for.
        slice: where it runs.
        toolchain: what compiled it.
        constraints: what it had to respect.
        candidate: layout and compiler options.
        placement: which device of the slice sits at each mesh position.
        arguments: how each argument leaf of the step is sharded.
        evidence: kind of `step_s`.
        step_s: seconds of one step under `evidence`.
        memory_bytes: per device at the peak; None if unknown.
        details: where the time goes: the prediction's JSON document.
        baselines: how the baselines do.
        proved: True if the search showed that no other layout of its space can be better in the model.
        study: name of the study, and `trial` the number in it.
        measurement: what a device took, as `tuner.timings.Measured` writes it; empty if it was not measured.
    """

    workload: WorkloadKey
    slice: Slice
    toolchain: Toolchain
    constraints: Constraints
    candidate: Candidate
    placement: Placement
    arguments: tuple[ArgumentSharding, ...]
    evidence: Evidence
    step_s: float
    memory_bytes: int | None
    details: Mapping[str, Any]
    baselines: tuple[Baseline, ...] = ()
    proved: bool = False
    study: str = ""
    trial: int = -1
    measurement: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime

    def __post_init__(self) -> None:
        if self.created_at.tzinfo is None:
            raise InvalidValue("a plan's created_at must be aware, in UTC")
        devices = self.slice.num_devices
        if self.candidate.layout.devices != devices or len(self.placement.devices) != devices:
            raise InvalidValue(
                f"plan for {self.slice.name} ({devices} devices) has a layout of {self.candidate.layout.devices} and a "
                f"placement of {len(self.placement.devices)}"
            )

    @property
    def predicted_s(self) -> float | None:
        """The predicted step, whatever the plan rests on; None if there is no prediction."""
        if self.evidence is Evidence.PREDICTED:
            return self.step_s
        found = self.details.get("step_s")
        return None if found is None else float(found)

    @property
    def measured_s(self) -> float | None:
        """The measured step; None if no device was timed."""
        return self.step_s if self.evidence is Evidence.MEASURED else None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None without both."""
        predicted, measured = self.predicted_s, self.measured_s
        return None if not predicted or measured is None else measured / predicted

    def speedup(self, baseline: str) -> float | None:
        """Returns how many times faster the plan is than a baseline under its evidence; None if that does not run."""
        for entry in self.baselines:
            if entry.name == baseline and entry.step_s is not None:
                return entry.step_s / self.step_s
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns the full document. Everything that a deploy needs is in it, and it needs no package to be read."""
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload.to_json(),
            "slice": {
                "name": self.slice.name,
                "generation": self.slice.generation_name,
                "shape": list(self.slice.shape),
                "wrap": list(self.slice.wrap),
                "twisted": self.slice.twisted,
            },
            "toolchain": self.toolchain.to_json(),
            "constraints": self.constraints.to_json(),
            "candidate": self.candidate.to_json(),
            "placement": self.placement.to_json(self.slice),
            "arguments": [
                {"path": a.path, "shape": list(a.shape), "dtype": a.dtype, "spec": [list(axes) for axes in a.spec]}
                for a in self.arguments
            ],
            "axis_types": dict.fromkeys(self.candidate.layout.axis_names, "auto"),
            "evidence": self.evidence.value,
            "step_s": self.step_s,
            "memory_bytes": self.memory_bytes,
            "details": dict(self.details),
            "baselines": [baseline.to_json() for baseline in self.baselines],
            "proved": self.proved,
            "study": self.study,
            "trial": self.trial,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "ratio": self.ratio,
            **({"measurement": dict(self.measurement)} if self.measurement else {}),
            "created_at": self.created_at.astimezone(UTC).isoformat(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """Reads what `to_json` wrote. Raises InvalidValue on a document of a newer schema or with parts missing."""
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            raise InvalidValue(f"plan document has schema_version {version!r}; this version reads {SCHEMA_VERSION}")
        try:
            return _read(document)
        except InvalidValue:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise InvalidValue(f"plan document is incomplete or malformed: {error!r}") from error


def _object(part: Any) -> Mapping[str, Any]:
    if not isinstance(part, Mapping):
        raise TypeError(f"a JSON object was expected, not {type(part).__name__}")
    return part


def _read(document: Mapping[str, Any]) -> Plan:
    where = document["slice"]
    slice_ = Slice(
        generation_name=where["generation"],
        shape=tuple(where["shape"]),
        wrap=tuple(map(bool, where["wrap"])),
        twisted=bool(where.get("twisted", False)),
    )
    constraints = document["constraints"]
    return Plan(
        workload=WorkloadKey.from_json(document["workload"]),
        slice=slice_,
        toolchain=Toolchain.from_json(document["toolchain"]),
        constraints=Constraints(
            objective=constraints["objective"],
            reserve_hbm_bytes=int(constraints["reserve_hbm_bytes"]),
            links=tuple(constraints.get("links", ())),
        ),
        candidate=Candidate.from_json(document["candidate"]),
        placement=Placement.from_json(document["placement"], slice_),
        arguments=tuple(
            ArgumentSharding(
                path=a["path"],
                shape=tuple(a["shape"]),
                dtype=a["dtype"],
                spec=tuple(tuple(axes) for axes in a["spec"]),
            )
            for a in document["arguments"]
        ),
        evidence=Evidence(document["evidence"]),
        step_s=float(document["step_s"]),
        memory_bytes=None if document["memory_bytes"] is None else int(document["memory_bytes"]),
        details=_object(document["details"]),
        baselines=tuple(Baseline(**entry) for entry in document["baselines"]),
        proved=bool(document["proved"]),
        study=str(document["study"]),
        trial=int(document["trial"]),
        measurement=document.get("measurement", {}),
        created_at=datetime.fromisoformat(document["created_at"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A stored version whose plan is still JSON: what a service passes on without reading it."""

    id: int
    version: int
    state: PlanState
    stored_at: datetime
    text: str
    note: str = ""

    def read(self) -> StoredPlan:
        """Reads the plan. Raises InvalidValue if it is of a newer schema."""
        return StoredPlan(
            plan=Plan.from_json(json.loads(self.text)),
            id=self.id,
            version=self.version,
            state=self.state,
            stored_at=self.stored_at,
            note=self.note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan as a store holds it: an immutable version with a state."""

    plan: Plan
    id: int
    version: int
    state: PlanState
    stored_at: datetime
    note: str = ""
