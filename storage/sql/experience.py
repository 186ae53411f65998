"""Results across the studies of a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from storage.schema import StudyRow, TrialRow
from storage.sql.database import Part
from tuner.experience import MOST_STUDIES, MOST_TRIALS, Experience, ExperienceStore
from tuner.layouts.layout import Candidate
from tuner.plans.plan import Evidence
from tuner.stores import TrialState


class SqlExperienceStore(Part, ExperienceStore):
    """`ExperienceStore` over the tables of studies and trials."""

    def experience(self, model: str, *, besides: int | None = None) -> Sequence[Experience]:
        """Returns the best complete trials of the newest studies of a model."""
        known = (TrialRow.state == TrialState.COMPLETE, TrialRow.predicted_s.is_not(None))
        studies = (
            select(StudyRow.id, StudyRow.slice_name, StudyRow.shape)
            .where(
                StudyRow.model == model,
                StudyRow.evidence == Evidence.PREDICTED,
                StudyRow.id != (-1 if besides is None else besides),
                select(TrialRow.number).where(TrialRow.study_id == StudyRow.id, *known).exists(),
            )
            .order_by(StudyRow.id.desc())
            .limit(MOST_STUDIES)
        )
        found: list[Experience] = []
        with self._db.read() as session:
            for study_id, slice_name, shape in session.execute(studies).all():
                best = (
                    select(TrialRow.candidate, TrialRow.estimate_s, TrialRow.predicted_s)
                    .where(TrialRow.study_id == study_id, *known)
                    .order_by(TrialRow.predicted_s, TrialRow.number)
                    .limit(MOST_TRIALS)
                )
                found += (
                    Experience(
                        study_id=study_id,
                        slice_name=slice_name,
                        shape=shape,
                        candidate=Candidate.from_json(candidate),
                        estimate_s=estimate_s,
                        predicted_s=predicted_s,
                    )
                    for candidate, estimate_s, predicted_s in session.execute(best)
                    if predicted_s is not None
                )
        return found
