"""What workers share, in a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from storage.documents import clean, strict
from storage.schema import TrialRow
from storage.schema_work import AbortRow, TaskRow
from storage.sql.database import Part
from storage.sql.studies import count_change, find_study, slice_of, study_of, trial_columns, trial_of
from tuner.stores import ContentKey, StudyKey, Trial
from tuner.work import Task, WorkStore, settled


class SqlWorkStore(Part, WorkStore):
    """`WorkStore` over our tables."""

    def publish(self, task: Task) -> None:
        """Stores how a study is worked on."""
        row = {
            "study_id": task.study_id,
            "document": strict(task.to_json()),
            "open": task.open,
            "published_at": self._db.now(),
        }
        with self._db.write() as session:
            find_study(session, task.study_id)
            self._db.insert_or_replace(session, TaskRow, [row])

    def tasks(self, *, open_only: bool = True) -> Sequence[Task]:
        """Returns the tasks of studies, the first published first."""
        wanted = select(TaskRow).order_by(TaskRow.published_at, TaskRow.study_id)
        if open_only:
            wanted = wanted.where(TaskRow.open)
        with self._db.read() as session:
            return [
                Task.from_json(row.document, study_id=row.study_id, open=row.open) for row in session.scalars(wanted)
            ]

    def close_task(self, study_id: int) -> None:
        """Tells workers to join the study no more."""
        with self._db.write() as session:
            session.execute(update(TaskRow).where(TaskRow.study_id == study_id, TaskRow.open).values(open=False))

    def study_key(self, study_id: int) -> StudyKey:
        """Returns what a study optimises."""
        with self._db.read() as session:
            return study_of(find_study(session, study_id), {}).key

    def changed_trials(self, study_id: int, after: int = 0) -> tuple[Sequence[Trial], int]:
        """Returns the trials written since `after`, and what to ask after next time."""
        with self._db.read() as session:
            study = find_study(session, study_id)
            # Read before the trials: what is written in between then comes twice, not never.
            changes, slice_ = study.changes, slice_of(study)
            if changes <= after:
                return [], changes
            rows = session.scalars(
                select(TrialRow)
                .where(TrialRow.study_id == study_id, TrialRow.change > after)
                .order_by(TrialRow.change, TrialRow.number)
            )
            return [trial_of(row, slice_) for row in rows], changes

    def end_trial(self, study_id: int, trial: Trial) -> Trial:
        """Stores a trial's end as `settled` says."""
        with self._db.write() as session:
            # Counting the change holds the study's row, so that who ends a trial of it at the same time waits.
            change, slice_ = count_change(session, study_id)
            row = session.get(TrialRow, (study_id, trial.number))
            kept = settled(None if row is None else row.state, trial)
            if kept is None:
                assert row is not None
                return trial_of(row, slice_)
            self._db.insert_or_replace(session, TrialRow, [trial_columns(study_id, kept, slice_) | {"change": change}])
            return kept

    def count_abort(self, key: ContentKey, detail: str) -> int:
        """Counts that a candidate aborted the compiler; returns how often it has."""
        row = {"key_digest": key.digest, "aborts": 1, "detail": clean(detail), "stored_at": self._db.now()}
        statement = self._db.insert(AbortRow).values(row)
        newest = {name: statement.excluded[name] for name in ("detail", "stored_at")}
        counted = statement.on_conflict_do_update(
            index_elements=[AbortRow.key_digest], set_={**newest, "aborts": AbortRow.aborts + 1}
        ).returning(AbortRow.aborts)
        with self._db.write() as session:
            return session.scalars(counted).one()
