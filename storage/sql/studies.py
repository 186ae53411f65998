"""Studies and trials in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from storage.documents import clean, floats, strict, utc
from storage.schema import RefusalRow, StudyRow, TrialRow
from storage.sql.database import Part, rejected_columns, rejection_of, wrap_text
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.plans.plan import Constraints
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.slices.slice import Slice
from tuner.stores import Study, StudyKey, Trial, TrialState, TrialStore


class SqlTrialStore(Part, TrialStore):
    """`TrialStore` over our tables."""

    def open_study(self, key: StudyKey) -> Study:
        """Returns the study of that key, creating it if it is new."""
        query = select(StudyRow).where(StudyRow.digest == key.digest)
        with self._db.read() as session:
            row = session.scalars(query).one_or_none()
            if row is not None:
                return study_of(row, _counts(session, row.id).get(row.id, {}))
        with self._db.write() as session:
            self._db.insert_new(session, StudyRow, [_study_columns(key) | {"created_at": self._db.now()}])
            row = session.scalars(query).one()
            return study_of(row, _counts(session, row.id).get(row.id, {}))

    def studies(self) -> Sequence[Study]:
        """Returns every study, newest first."""
        with self._db.read() as session:
            counts = _counts(session)
            rows = session.scalars(select(StudyRow).order_by(StudyRow.id.desc()))
            return [study_of(row, counts.get(row.id, {})) for row in rows]

    def save_trials(self, study_id: int, trials: Sequence[Trial]) -> None:
        """Inserts or replaces trials by number."""
        with self._db.write() as session:
            # This holds the study's row to the end, so that changes are seen in the order of their numbers.
            change, slice_ = count_change(session, study_id)
            rows = {trial.number: trial_columns(study_id, trial, slice_) | {"change": change} for trial in trials}
            self._db.insert_or_replace(session, TrialRow, [rows[number] for number in sorted(rows)])

    def trials(
        self,
        study_id: int,
        *,
        state: TrialState | None = None,
        after: int = -1,
        limit: int | None = None,
    ) -> Sequence[Trial]:
        """Returns trials with a number above `after`, in order of number."""
        wanted = select(TrialRow).where(TrialRow.study_id == study_id, TrialRow.number > after)
        if state is not None:
            wanted = wanted.where(TrialRow.state == state)
        with self._db.read() as session:
            slice_ = slice_of(find_study(session, study_id))
            return [trial_of(row, slice_) for row in session.scalars(wanted.order_by(TrialRow.number).limit(limit))]

    def count_refusals(self, study_id: int, refusals: Mapping[str, int]) -> None:
        """Replaces the numbers of refused layouts."""
        with self._db.write() as session:
            find_study(session, study_id)
            session.execute(delete(RefusalRow).where(RefusalRow.study_id == study_id))
            rows = [
                {"study_id": study_id, "reason": reason, "layouts": layouts} for reason, layouts in refusals.items()
            ]
            self._db.insert_or_replace(session, RefusalRow, rows)

    def refusals(self, study_id: int) -> Mapping[str, int]:
        """Returns what `count_refusals` stored."""
        with self._db.read() as session:
            find_study(session, study_id)
            rows = session.scalars(
                select(RefusalRow).where(RefusalRow.study_id == study_id).order_by(RefusalRow.layouts.desc())
            )
            return {row.reason: row.layouts for row in rows}

    def close_run(self, study_id: int, *, proved: bool, spent_s: float) -> None:
        """Stores the end of a run."""
        changes = {"proved": proved, "spent_s": StudyRow.spent_s + spent_s}
        with self._db.write() as session:
            find_study(session, study_id)
            session.execute(update(StudyRow).where(StudyRow.id == study_id).values(changes))


def count_change(session: Session, study_id: int) -> tuple[int, Slice]:
    """Counts a write to a study's trials; returns the count and the study's slice. Other writers of it wait.

    Raises KeyError if there is no such study.
    """
    counted = update(StudyRow).where(StudyRow.id == study_id).values(changes=StudyRow.changes + 1)
    row = session.execute(
        counted.returning(StudyRow.changes, StudyRow.key, StudyRow.wrap),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if row is None:
        raise KeyError(f"no study {study_id}")
    return row.changes, _slice(row.key, row.wrap)


def find_study(session: Session, study_id: int) -> StudyRow:
    """Returns a study's row. Raises KeyError if there is no such study."""
    row = session.get(StudyRow, study_id)
    if row is None:
        raise KeyError(f"no study {study_id}")
    return row


def _counts(session: Session, study_id: int | None = None) -> dict[int, dict[str, int]]:
    query = select(TrialRow.study_id, TrialRow.state, func.count()).group_by(TrialRow.study_id, TrialRow.state)
    if study_id is not None:
        query = query.where(TrialRow.study_id == study_id)
    counts: dict[int, dict[str, int]] = {}
    for found, state, number in session.execute(query):
        counts.setdefault(found, {})[state.value] = number
    return counts


def _study_columns(key: StudyKey) -> dict[str, Any]:
    return {
        "digest": key.digest,
        "name": key.name,
        "model": key.workload.model,
        "shape": key.workload.shape,
        "variant": key.workload.variant,
        "revision": key.workload.revision,
        "slice_name": key.slice.name,
        "wrap": wrap_text(key.slice.wrap),
        "workload_digest": key.workload.digest,
        "toolchain_digest": key.toolchain.digest,
        "constraints_digest": key.constraints.digest,
        "evidence": key.evidence,
        "space_revision": key.space_revision,
        "key": {
            "workload": key.workload.to_json(),
            "slice": {
                "generation": key.slice.generation_name,
                "shape": list(key.slice.shape),
                "twisted": key.slice.twisted,
            },
            "toolchain": key.toolchain.to_json(),
            "constraints": key.constraints.to_json(),
        },
        "proved": False,
        "spent_s": 0.0,
    }


def slice_of(row: StudyRow) -> Slice:
    """Returns the slice of a study."""
    return _slice(row.key, row.wrap)


def _slice(key: Mapping[str, Any], wrap: str) -> Slice:
    return Slice(
        generation_name=key["slice"]["generation"],
        shape=tuple(key["slice"]["shape"]),
        wrap=tuple(mark == "1" for mark in wrap),
        twisted=key["slice"].get("twisted", False),
    )


def study_of(row: StudyRow, counts: Mapping[str, int]) -> Study:
    """Returns the study that a row holds, with its trials by state."""
    key = StudyKey(
        workload=WorkloadKey.from_json(row.key["workload"]),
        slice=slice_of(row),
        toolchain=Toolchain.from_json(row.key["toolchain"]),
        constraints=Constraints(**row.key["constraints"]),
        evidence=row.evidence,
        space_revision=row.space_revision,
    )
    return Study(
        id=row.id, key=key, created_at=row.created_at, proved=row.proved, spent_s=row.spent_s, counts=dict(counts)
    )


def trial_columns(study_id: int, trial: Trial, slice_: Slice) -> dict[str, Any]:
    """Returns a trial as columns, without the number of the change."""
    return {
        "study_id": study_id,
        "number": trial.number,
        "state": trial.state,
        "stage": trial.stage,
        **rejected_columns(trial.rejection),
        "candidate_digest": trial.candidate.digest,
        "layout": str(trial.candidate.layout),
        "candidate": trial.candidate.to_json(),
        "baseline": trial.baseline,
        "bound_s": trial.bound_s,
        "estimate_s": trial.estimate_s,
        "predicted_s": trial.predicted_s,
        "measured_s": trial.measured_s,
        "numbers": strict(trial.numbers),
        "placement": trial.placement.to_json(slice_) if trial.placement else None,
        "details": strict(trial.details),
        "lowered_digest": trial.lowered_digest,
        "host": clean(trial.host),
        "started_at": utc(trial.started_at),
        "finished_at": utc(trial.finished_at),
    }


def trial_of(row: TrialRow, slice_: Slice) -> Trial:
    """Returns the trial that a row holds."""
    return Trial(
        number=row.number,
        candidate=Candidate.from_json(row.candidate),
        state=row.state,
        stage=row.stage,
        rejection=rejection_of(row),
        baseline=row.baseline,
        bound_s=row.bound_s,
        estimate_s=row.estimate_s,
        predicted_s=row.predicted_s,
        measured_s=row.measured_s,
        numbers=floats(row.numbers),
        placement=None if row.placement is None else Placement.from_json(row.placement, slice_),
        details=row.details,
        lowered_digest=row.lowered_digest,
        host=row.host,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
