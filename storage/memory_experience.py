"""Results across the studies of a store that lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from storage.memory_work import MemoryStudy
from tuner.experience import MOST_STUDIES, MOST_TRIALS, Experience, ExperienceStore
from tuner.plans.plan import Evidence
from tuner.stores import TrialState


class MemoryExperienceStore(ExperienceStore):
    """`ExperienceStore` over the studies in memory. Safe for the threads of one process."""

    _lock: threading.RLock
    _studies: dict[int, MemoryStudy]

    def experience(self, model: str, *, besides: int | None = None) -> Sequence[Experience]:
        """Returns the best complete trials of the newest studies of a model."""
        found: list[list[Experience]] = []
        with self._lock:
            for study_id, study in sorted(self._studies.items(), reverse=True):
                if study.key.workload.model != model or study_id == besides or len(found) == MOST_STUDIES:
                    continue
                if study.key.evidence is not Evidence.PREDICTED:
                    continue
                known = [
                    Experience(
                        study_id=study_id,
                        slice_name=study.key.slice.name,
                        shape=study.key.workload.shape,
                        candidate=trial.candidate,
                        estimate_s=trial.estimate_s,
                        predicted_s=trial.predicted_s,
                    )
                    for _, trial in sorted(study.trials.items())
                    if trial.state is TrialState.COMPLETE and trial.predicted_s is not None
                ]
                if known:
                    found.append(sorted(known, key=lambda each: each.predicted_s)[:MOST_TRIALS])
        return [each for of_study in found for each in of_study]
