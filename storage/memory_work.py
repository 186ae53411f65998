"""What workers share in a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile

from storage.documents import clean, floats, strict, utc
from tuner.rejections import Rejection
from tuner.stores import ContentKey, StudyKey, Trial
from tuner.work import Task, WorkStore, settled


@dataclass(slots=True)
class MemoryStudy:
    """A study, its trials by number, and the order in which they were written."""

    key: StudyKey
    created_at: datetime
    proved: bool = False
    spent_s: float = 0.0
    trials: dict[int, Trial] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    changed: dict[int, int] = field(default_factory=dict)
    task: Task | None = None

    def save(self, trials: Sequence[Trial]) -> None:
        """Inserts or replaces trials by number."""
        copies = {trial.number: copy_of(trial) for trial in trials}
        self.changes += 1
        for number in copies:
            self.changed.pop(number, None)
            self.changed[number] = self.changes
        self.trials.update(copies)


class MemoryWorkStore(WorkStore):
    """Tasks, changes and aborts in dictionaries. Safe for the threads of one process."""

    _lock: threading.RLock
    _studies: dict[int, MemoryStudy]
    _aborts: dict[str, int]

    def publish(self, task: Task) -> None:
        """Stores how a study is worked on."""
        with self._lock:
            study = self._study(task.study_id)
            study.task = Task.from_json(strict(task.to_json()), study_id=task.study_id, open=task.open)

    def tasks(self, *, open_only: bool = True) -> Sequence[Task]:
        """Returns the tasks of studies, the first published first."""
        with self._lock:
            tasks = [study.task for study in self._studies.values() if study.task is not None]
            return [task for task in tasks if task.open or not open_only]

    def close_task(self, study_id: int) -> None:
        """Tells workers to join the study no more."""
        with self._lock:
            study = self._studies.get(study_id)
            if study is not None and study.task is not None:
                study.task = replace(study.task, open=False)

    def study_key(self, study_id: int) -> StudyKey:
        """Returns what a study optimises."""
        with self._lock:
            return self._study(study_id).key

    def changed_trials(self, study_id: int, after: int = 0) -> tuple[Sequence[Trial], int]:
        """Returns the trials written since `after`, and what to ask after next time."""
        with self._lock:
            study = self._study(study_id)
            newest_first = takewhile(lambda item: item[1] > after, reversed(study.changed.items()))
            return [copy_of(study.trials[number]) for number, _ in reversed(list(newest_first))], study.changes

    def end_trial(self, study_id: int, trial: Trial) -> Trial:
        """Stores a trial's end as `settled` says."""
        with self._lock:
            study = self._study(study_id)
            stored = study.trials.get(trial.number)
            kept = settled(None if stored is None else stored.state, trial)
            if kept is not None:
                study.save([kept])
            return copy_of(study.trials[trial.number])

    def count_abort(self, key: ContentKey, detail: str) -> int:
        """Counts that a candidate aborted the compiler; returns how often it has."""
        with self._lock:
            self._aborts[key.digest] = self._aborts.get(key.digest, 0) + 1
            return self._aborts[key.digest]

    def _study(self, study_id: int) -> MemoryStudy:
        try:
            return self._studies[study_id]
        except KeyError:
            raise KeyError(f"no study {study_id}") from None


def copy_of(trial: Trial) -> Trial:
    """Returns a trial that shares nothing that can change, as a database would give it back."""
    return replace(
        trial,
        rejection=trial.rejection and kept_rejection(trial.rejection),
        numbers=floats(strict(trial.numbers)),
        details=strict(trial.details),
        host=clean(trial.host),
        started_at=utc(trial.started_at),
        finished_at=utc(trial.finished_at),
    )


def kept_rejection(rejection: Rejection) -> Rejection:
    """Returns a rejection as a database would give it back."""
    return replace(rejection, detail=clean(rejection.detail), numbers=floats(strict(rejection.numbers)))
