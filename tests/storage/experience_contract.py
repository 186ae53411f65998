"""The contract of `tuner.experience` as tests, which a store inherits and gives itself to as the fixture `store`."""

from __future__ import annotations

from tests.storage.samples import MODEL, OLD, grid, study_key, trial, workload
from tuner import experience
from tuner.plans.plan import Evidence
from tuner.stores import Store, TrialState


class ExperienceStoreContract:
    def test_what_other_studies_of_the_model_found_is_told_newest_study_and_best_trial_first(
        self, store: Store
    ) -> None:
        old = store.open_study(study_key(toolchain=OLD))
        here = store.open_study(study_key())
        new = store.open_study(study_key(workload=workload(shape="480x272x81"), slice=grid(4, 4)))
        store.save_trials(old.id, [trial(0), trial(1, estimate_s=None)])
        store.save_trials(here.id, [trial(0)])
        better = trial(1, predicted_s=0.01)
        unfinished = trial(2, state=TrialState.RUNNING, predicted_s=None)
        withdrawn = trial(3, state=TrialState.SUPERSEDED, predicted_s=0.001)
        store.save_trials(new.id, [trial(0), better, unfinished, withdrawn])
        found = store.experience(MODEL, besides=here.id)
        assert [(each.study_id, each.predicted_s) for each in found] == [
            (new.id, 0.01),
            (new.id, 0.3),
            (old.id, 0.3),
            (old.id, 1.3),
        ]
        first, last = found[0], found[-1]
        assert (first.slice_name, first.shape) == ("v5e-4x4", "480x272x81")
        assert first.candidate == better.candidate
        assert first.estimate_s == better.estimate_s
        assert last.estimate_s is None
        assert len(store.experience(MODEL)) == 5

    def test_other_models_and_measured_studies_teach_nothing_here(self, store: Store) -> None:
        for key in (study_key(workload=workload(model="another")), study_key(evidence=Evidence.MEASURED)):
            store.save_trials(store.open_study(key).id, [trial(0)])
        assert store.experience(MODEL) == []

    def test_only_so_much_is_told(self, store: Store) -> None:
        for number in range(experience.MOST_STUDIES + 1):
            study = store.open_study(study_key(space_revision=str(number)))
            store.save_trials(study.id, [trial(n) for n in range(experience.MOST_TRIALS + 1)])
        empty = store.open_study(study_key(space_revision="empty"))
        found = store.experience(MODEL)
        told = {each.study_id for each in found}
        assert empty.id not in told
        assert len(told) == experience.MOST_STUDIES
        assert len(found) == experience.MOST_STUDIES * experience.MOST_TRIALS
        assert min(told) == 2
