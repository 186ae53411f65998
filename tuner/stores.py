"""What the search and its readers need from persistence, as abstract classes with the contract in their docstrings.

Rules for every store: values go in and out, never rows or sessions; returned values are the caller's to keep; each
method is one transaction; a method that returns has made its change durable. Times are aware and in UTC. Metrics and
`numbers` keep NaN and infinities; in `details` these become the texts ``NaN``, ``Infinity`` and ``-Infinity``. A store
that cannot serve raises StoreError.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from tuner.calibration.records import CalibrationStore
from tuner.canonical import digest
from tuner.experience import ExperienceStore
from tuner.layouts.layout import Candidate
from tuner.leases import LeaseStore
from tuner.measurements import MeasurementStore
from tuner.nightly.nights import NightStore
from tuner.placements.placement import Placement
from tuner.plans.lookup import Answer, Located, Query
from tuner.plans.plan import Constraints, Evidence, Plan, StoredDocument, StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled, Screened
from tuner.rejections import Rejection, Stage
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice
from tuner.upkeep import UpkeepStore
from tuner.work import WorkStore


class TrialState(StrEnum):
    """State of a trial. Values are stored: only add, never remove."""

    RUNNING = "running"
    COMPLETE = "complete"
    REJECTED = "rejected"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    """What a study optimises. One study for each workload, slice, toolchain, constraints, evidence and space."""

    workload: WorkloadKey
    slice: Slice
    toolchain: Toolchain
    constraints: Constraints = Constraints()
    evidence: Evidence = Evidence.PREDICTED
    space_revision: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over every part."""
        return digest(
            [
                self.workload.digest,
                [self.slice.name, list(self.slice.wrap)],
                self.toolchain.digest,
                self.constraints.digest,
                self.evidence.value,
                self.space_revision,
            ]
        )

    @property
    def name(self) -> str:
        """What Optuna's tools show, unique: ``model@shape slice predicted 1a2b3c4d``."""
        return f"{self.workload.name} {self.slice.name} {self.evidence.value} {self.digest[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study as a store holds it: `spent_s` is the time of all its runs, `counts` its trials by state."""

    id: int
    key: StudyKey
    created_at: datetime
    proved: bool = False
    spent_s: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate's way through the funnel, with every stage's numbers.

    Attributes:
        number: in the study, from 0; equal to the Optuna trial's number.
        candidate: what was tried.
        state: where it stands; `stage` the last stage that it entered.
        rejection: why it ended, if it was rejected.
        baseline: ``A`` or ``B`` if it is one, else empty.
        bound_s, estimate_s, predicted_s, measured_s: step seconds of each stage; None where it was not reached.
        numbers: further numbers of the stages, with units in their names (``argument_bytes``, ``compute_s``).
        placement: the best placement found, once placed.
        details: the prediction's JSON document.
        lowered_digest: of the lowered program, once known.
        host: that ran it.
    """

    number: int
    candidate: Candidate
    state: TrialState
    stage: Stage
    rejection: Rejection | None = None
    baseline: str = ""
    bound_s: float | None = None
    estimate_s: float | None = None
    predicted_s: float | None = None
    measured_s: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    placement: Placement | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    lowered_digest: str = ""
    host: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentKey:
    """Identifies what a stage makes of a candidate: equal keys give equal results, in any study."""

    workload_digest: str
    slice_name: str
    wrap: tuple[bool, ...]
    toolchain_digest: str
    candidate_digest: str

    @property
    def digest(self) -> str:
        """SHA-256 over every part."""
        return digest(
            [
                self.workload_digest,
                self.slice_name,
                list(self.wrap),
                self.toolchain_digest,
                self.candidate_digest,
            ]
        )


class TrialStore(abc.ABC):
    """Studies and their trials."""

    @abc.abstractmethod
    def open_study(self, key: StudyKey) -> Study:
        """Returns the study of that key, creating it if it is new. Safe for several processes at once."""

    @abc.abstractmethod
    def studies(self) -> Sequence[Study]:
        """Returns every study, newest first, with trial counts by state."""

    @abc.abstractmethod
    def save_trials(self, study_id: int, trials: Sequence[Trial]) -> None:
        """Inserts or replaces trials by number, in one transaction. Raises KeyError if there is no such study."""

    @abc.abstractmethod
    def trials(
        self,
        study_id: int,
        *,
        state: TrialState | None = None,
        after: int = -1,
        limit: int | None = None,
    ) -> Sequence[Trial]:
        """Returns trials with a number above `after`, in order of number. Raises KeyError if there is no such study."""

    @abc.abstractmethod
    def count_refusals(self, study_id: int, refusals: Mapping[str, int]) -> None:
        """Replaces the numbers of layouts that enumeration refused, by reason. Raises KeyError if there is no study."""

    @abc.abstractmethod
    def refusals(self, study_id: int) -> Mapping[str, int]:
        """Returns what `count_refusals` stored. Raises KeyError if there is no such study."""

    @abc.abstractmethod
    def close_run(self, study_id: int, *, proved: bool, spent_s: float) -> None:
        """Stores the end of a run: whether the best is proved, and its seconds, added to those of earlier runs.

        Raises KeyError if there is no such study.
        """


class ProgramStore(abc.ABC):
    """Results of screens and compiles by content, shared between studies, workers and nights."""

    @abc.abstractmethod
    def screened(self, keys: Sequence[ContentKey]) -> Mapping[str, Screened | Rejection]:
        """Returns what is known of these keys, by key digest. Constant statements whatever their number."""

    @abc.abstractmethod
    def save_screened(self, outcomes: Mapping[ContentKey, Screened | Rejection]) -> None:
        """Stores screen outcomes; an outcome that is there stays."""

    @abc.abstractmethod
    def compiled(self, key: ContentKey) -> Compiled | Rejection | None:
        """Returns what the compiler made of a key, or None if it has not been asked."""

    @abc.abstractmethod
    def compiled_program(self, lowered_digest: str, key: ContentKey) -> Compiled | Rejection | None:
        """Returns the compile result of an equal lowered program on the slice, wrap and toolchain of `key`, or None.

        The compiler sees nothing else, so `lowered_digest` must cover the compiler options too.
        """

    @abc.abstractmethod
    def save_compiled(self, key: ContentKey, lowered_digest: str, outcome: Compiled | Rejection) -> None:
        """Stores a compile outcome under its key and its lowered digest; an outcome that is there stays.

        An empty lowered digest means that it is not known: the outcome answers for its key alone.
        """


class PlanStore(abc.ABC):
    """Plans: immutable versions, exactly one active for a workload, slice, toolchain and constraints."""

    @abc.abstractmethod
    def promote(self, plan: Plan, *, note: str = "") -> StoredPlan:
        """Stores a plan as the active version of its key; the version that was active becomes superseded."""

    @abc.abstractmethod
    def active(self, plan_like: Plan | StudyKey) -> StoredPlan | None:
        """Returns the active plan of the same workload, slice, toolchain and constraints, or None."""

    @abc.abstractmethod
    def locate(self, query: Query) -> Located:
        """Goes down the lookup ladder without reading a plan's document, in a constant number of statements.

        What it locates is an immutable version, so who has read it once need not read it again.
        """

    @abc.abstractmethod
    def answer(self, query: Query) -> Answer:
        """Goes down the lookup ladder and reads the plan. Never raises because there is no plan: that is an answer."""

    def lookup(
        self,
        model: Query | str,
        shape: str = "",
        slice: str = "",
        toolchain: Toolchain | None = None,
        revision: str | None = None,
    ) -> Answer:
        """Goes down the lookup ladder for a query, or for a model, shape and slice in its place.

        Args:
            model: a query, which then says everything, or a model's name.
            shape: for example ``832x480x81``; empty for a workload without shapes.
            slice: a slice's name as people type it, ``v5e-2x4`` or ``v5litepod-8``.
            toolchain: of the caller (`tuner.plans.toolchain.installed_toolchain`); without one the answer says that it
                was not checked.
            revision: of the model; None for any.

        Raises UnknownName for a name that is no slice's. Never raises because there is no plan: that is an answer.
        """
        if isinstance(model, Query):
            return self.answer(model)
        return self.answer(
            Query(model=model, shape=shape, slice_name=parse_slice(slice).name, toolchain=toolchain, revision=revision)
        )

    @abc.abstractmethod
    def plans(
        self, *, model: str | None = None, active_only: bool = True, limit: int | None = None
    ) -> Sequence[StoredPlan]:
        """Returns stored plans, newest first, `limit` at most."""

    @abc.abstractmethod
    def plan(self, plan_id: int) -> StoredPlan:
        """Returns one version. Raises PlanNotFound."""

    @abc.abstractmethod
    def document(self, plan_id: int) -> StoredDocument:
        """Returns one version without reading its plan. Raises PlanNotFound."""

    @abc.abstractmethod
    def retire(self, plan_id: int, *, note: str = "") -> StoredPlan:
        """Takes a version out of service. Raises PlanNotFound."""


class Store(
    TrialStore,
    ExperienceStore,
    ProgramStore,
    PlanStore,
    LeaseStore,
    WorkStore,
    UpkeepStore,
    NightStore,
    MeasurementStore,
    CalibrationStore,
):
    """One database with everything. A context manager that closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abc.abstractmethod
    def check(self) -> None:
        """Raises StoreError with what to do unless the store can serve now."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases connections. The store is unusable afterwards."""
