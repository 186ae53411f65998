"""A store that lives and dies with the process: the plainest reading of the contract."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from storage.documents import (
    clean,
    strict,
)
from storage.memory_calibration import MemoryCalibrationStore
from storage.memory_experience import MemoryExperienceStore
from storage.memory_leases import MemoryLeaseStore
from storage.memory_measurements import MemoryMeasurementStore
from storage.memory_nights import MemoryNightStore
from storage.memory_upkeep import MemoryUpkeepStore
from storage.memory_work import MemoryStudy, MemoryWorkStore, copy_of, kept_rejection
from tuner.calibration.fitted import Fit
from tuner.calibration.observation import Observation
from tuner.canonical import canonical_json
from tuner.errors import PlanNotFound
from tuner.leases import Lease
from tuner.measurements import Measurement
from tuner.nightly.nights import StoredNight
from tuner.plans.lookup import Answer, Header, Located, Query, locate
from tuner.plans.plan import Plan, PlanState, StoredDocument, StoredPlan
from tuner.ports import Compiled, Screened
from tuner.rejections import Rejection
from tuner.stores import ContentKey, Store, Study, StudyKey, Trial, TrialState


def _now() -> datetime:
    return datetime.now(UTC)


class MemoryStore(
    MemoryWorkStore,
    MemoryExperienceStore,
    MemoryUpkeepStore,
    MemoryLeaseStore,
    MemoryNightStore,
    MemoryMeasurementStore,
    MemoryCalibrationStore,
    Store,
):
    """Everything in dictionaries. Safe for the threads of one process."""

    def __init__(self, *, clock: Callable[[], datetime] = _now) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._studies: dict[int, MemoryStudy] = {}
        self._screened: dict[str, Screened | Rejection] = {}
        self._compiled: dict[str, Compiled | Rejection] = {}
        self._programs: dict[tuple[str, str, tuple[bool, ...], str], Compiled | Rejection] = {}
        self._plans: dict[int, StoredPlan] = {}
        self._leases: dict[str, Lease] = {}
        self._aborts: dict[str, int] = {}
        self._nights: dict[int, StoredNight] = {}
        self._measurements: list[Measurement] = []
        self._observations: list[Observation] = []
        self._fits: list[Fit] = []

    def open_study(self, key: StudyKey) -> Study:
        """Returns the study of that key, creating it if it is new."""
        with self._lock:
            for study_id, study in self._studies.items():
                if study.key.digest == key.digest:
                    return _outside(study_id, study)
            study_id = len(self._studies) + 1
            self._studies[study_id] = MemoryStudy(key=key, created_at=self._clock())
            return _outside(study_id, self._studies[study_id])

    def studies(self) -> Sequence[Study]:
        """Returns every study, newest first."""
        with self._lock:
            return [_outside(study_id, study) for study_id, study in reversed(self._studies.items())]

    def save_trials(self, study_id: int, trials: Sequence[Trial]) -> None:
        """Inserts or replaces trials by number."""
        with self._lock:
            self._study(study_id).save(trials)

    def trials(
        self,
        study_id: int,
        *,
        state: TrialState | None = None,
        after: int = -1,
        limit: int | None = None,
    ) -> Sequence[Trial]:
        """Returns trials with a number above `after`, in order of number."""
        with self._lock:
            kept = sorted(self._study(study_id).trials.items())
            found = [
                copy_of(trial) for number, trial in kept if number > after and (state is None or trial.state is state)
            ]
            return found[:limit]

    def count_refusals(self, study_id: int, refusals: Mapping[str, int]) -> None:
        """Replaces the numbers of refused layouts."""
        with self._lock:
            self._study(study_id).refusals = dict(refusals)

    def refusals(self, study_id: int) -> Mapping[str, int]:
        """Returns what `count_refusals` stored."""
        with self._lock:
            return dict(self._study(study_id).refusals)

    def close_run(self, study_id: int, *, proved: bool, spent_s: float) -> None:
        """Stores the end of a run."""
        with self._lock:
            study = self._study(study_id)
            study.proved = proved
            study.spent_s += spent_s

    def screened(self, keys: Sequence[ContentKey]) -> Mapping[str, Screened | Rejection]:
        """Returns what is known of these keys, by key digest."""
        with self._lock:
            digests = [key.digest for key in keys]
            return {digest: self._screened[digest] for digest in digests if digest in self._screened}

    def save_screened(self, outcomes: Mapping[ContentKey, Screened | Rejection]) -> None:
        """Stores screen outcomes; an outcome that is there stays."""
        with self._lock:
            for key, outcome in outcomes.items():
                self._screened.setdefault(
                    key.digest, kept_rejection(outcome) if isinstance(outcome, Rejection) else outcome
                )

    def compiled(self, key: ContentKey) -> Compiled | Rejection | None:
        """Returns what the compiler made of a key, or None if it has not been asked."""
        with self._lock:
            return self._compiled.get(key.digest)

    def compiled_program(self, lowered_digest: str, key: ContentKey) -> Compiled | Rejection | None:
        """Returns the compile result of an equal lowered program, or None."""
        with self._lock:
            return self._programs.get(_address(lowered_digest, key))

    def save_compiled(self, key: ContentKey, lowered_digest: str, outcome: Compiled | Rejection) -> None:
        """Stores a compile outcome under its key and its lowered digest; an outcome that is there stays."""
        outcome = replace(outcome, cached=False) if isinstance(outcome, Compiled) else kept_rejection(outcome)
        with self._lock:
            if key.digest not in self._compiled:
                if lowered_digest:
                    outcome = self._programs.setdefault(_address(lowered_digest, key), outcome)
                self._compiled[key.digest] = outcome

    def promote(self, plan: Plan, *, note: str = "") -> StoredPlan:
        """Stores a plan as the active version of its key; the version that was active becomes superseded."""
        plan = Plan.from_json(strict(plan.to_json()))
        with self._lock:
            same = [stored for stored in self._plans.values() if _key(stored.plan) == _key(plan)]
            for stored in same:
                if stored.state is PlanState.ACTIVE:
                    self._plans[stored.id] = replace(stored, state=PlanState.SUPERSEDED)
            made = StoredPlan(
                plan=plan,
                id=len(self._plans) + 1,
                version=len(same) + 1,
                state=PlanState.ACTIVE,
                stored_at=self._clock(),
                note=clean(note),
            )
            self._plans[made.id] = made
            return _fresh(made)

    def active(self, plan_like: Plan | StudyKey) -> StoredPlan | None:
        """Returns the active plan of the same key, or None."""
        return next((stored for stored in self.plans() if _key(stored.plan) == _key(plan_like)), None)

    def locate(self, query: Query) -> Located:
        """Goes down the lookup ladder without reading a plan's document."""
        asked = (query.slice_name, query.variant)
        plans = self.plans(model=query.model)
        return locate(query, [Header.of(s) for s in plans if (s.plan.slice.name, s.plan.workload.variant) == asked])

    def answer(self, query: Query) -> Answer:
        """Goes down the lookup ladder."""
        with self._lock:
            located = self.locate(query)
            return located.answer(None if located.plan_id is None else self.plan(located.plan_id))

    def plans(
        self, *, model: str | None = None, active_only: bool = True, limit: int | None = None
    ) -> Sequence[StoredPlan]:
        """Returns stored plans, newest first."""
        with self._lock:
            found = [
                stored
                for stored in reversed(self._plans.values())
                if (model is None or stored.plan.workload.model == model)
                and (not active_only or stored.state is PlanState.ACTIVE)
            ]
            return [_fresh(stored) for stored in found[:limit]]

    def plan(self, plan_id: int) -> StoredPlan:
        """Returns one version. Raises PlanNotFound."""
        with self._lock:
            try:
                return _fresh(self._plans[plan_id])
            except KeyError:
                raise PlanNotFound(f"no plan {plan_id}") from None

    def document(self, plan_id: int) -> StoredDocument:
        """Returns one version without reading its plan. Raises PlanNotFound."""
        stored = self.plan(plan_id)
        return StoredDocument(
            id=stored.id,
            version=stored.version,
            state=stored.state,
            stored_at=stored.stored_at,
            note=stored.note,
            text=canonical_json(stored.plan.to_json()),
        )

    def retire(self, plan_id: int, *, note: str = "") -> StoredPlan:
        """Takes a version out of service. Raises PlanNotFound."""
        with self._lock:
            stored = self.plan(plan_id)
            self._plans[plan_id] = replace(stored, state=PlanState.RETIRED, note=clean(note) or stored.note)
            return _fresh(self._plans[plan_id])

    def check(self) -> None:
        """Has nothing that could be amiss."""

    def close(self) -> None:
        """Has nothing to release."""


def _outside(study_id: int, study: MemoryStudy) -> Study:
    counts = Counter(trial.state.value for trial in study.trials.values())
    return Study(
        id=study_id,
        key=study.key,
        created_at=study.created_at,
        proved=study.proved,
        spent_s=study.spent_s,
        counts=dict(counts),
    )


def _fresh(stored: StoredPlan) -> StoredPlan:
    return replace(stored, plan=Plan.from_json(strict(stored.plan.to_json())))


def _address(lowered_digest: str, key: ContentKey) -> tuple[str, str, tuple[bool, ...], str]:
    return lowered_digest, key.slice_name, key.wrap, key.toolchain_digest


def _key(like: Plan | StudyKey) -> tuple[str, str, tuple[bool, ...], str, str]:
    return (
        like.workload.digest,
        like.slice.name,
        like.slice.wrap,
        like.toolchain.digest,
        like.constraints.digest,
    )
