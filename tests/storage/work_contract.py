"""The contract of `tuner.work` as tests, which a store inherits and gives itself to as the fixture `store`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.storage.samples import NEW, TOO_BIG, content_key, study_key, trial
from tuner.layouts.space import Choice, Dimension, Space
from tuner.plans.plan import Constraints, Evidence
from tuner.ports import WorkloadSpec
from tuner.rejections import Stage
from tuner.search.settings import SamplerName, Settings
from tuner.stores import Store, TrialState
from tuner.work import Task

SPACE = Space(
    dimensions=(Dimension(name="cfg", sizes=(1, 2)), Dimension(name="ulysses", sizes=(1, 2, 4))),
    options=(Choice(name="weights", values=("replicated", "context")), Choice(name="block", values=(512, 1024))),
    compiler=(Choice(name="xla_tpu_enable_x", values=("default", "true")),),
)


def task(study_id: int, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "study_id": study_id,
        "key_digest": study_key().digest,
        "spec": WorkloadSpec(model="wan2.1-t2v-1.3b", parameters={"shape": "832x480x81", "videos": 2}),
        "slice_name": "v5e-2x4",
        "toolchain": NEW,
        "settings": Settings(
            budget_s=None,
            max_trials=7,
            sampler=SamplerName.TPE,
            constraints=Constraints(reserve_hbm_bytes=1 << 30, links=("0,0:1,0=0.5",)),
        ),
        "space": SPACE,
    }
    return Task(**values | changes)


class WorkStoreContract:
    def test_a_task_comes_back_whole(self, store: Store) -> None:
        study = store.open_study(study_key())
        assert store.tasks() == []
        store.publish(task(study.id))
        assert store.tasks() == [task(study.id)]
        changed = task(study.id, settings=Settings())
        store.publish(changed)
        assert store.tasks() == [changed]

    def test_a_closed_task_is_for_no_worker_but_stays(self, store: Store) -> None:
        first, second = store.open_study(study_key()), store.open_study(study_key(space_revision="s2"))
        store.publish(task(first.id))
        store.publish(task(second.id))
        store.close_task(first.id)
        store.close_task(99)
        assert store.tasks() == [task(second.id)]
        assert store.tasks(open_only=False) == [task(first.id, open=False), task(second.id)]
        store.publish(task(first.id))
        assert {found.study_id for found in store.tasks()} == {first.id, second.id}

    def test_a_study_is_known_by_its_key(self, store: Store) -> None:
        keys = [study_key(), study_key(evidence=Evidence.MEASURED)]
        assert [store.study_key(store.open_study(key).id) for key in keys] == keys

    def test_changes_come_once_in_the_order_of_their_writes(self, store: Store) -> None:
        study = store.open_study(study_key())
        assert store.changed_trials(study.id) == ([], 0)
        store.save_trials(study.id, [trial(3), trial(1)])
        store.save_trials(study.id, [trial(0)])
        found, mark = store.changed_trials(study.id)
        assert sorted(t.number for t in found[:2]) == [1, 3]
        assert found[2] == trial(0)
        assert store.changed_trials(study.id, mark) == ([], mark)
        store.save_trials(study.id, [trial(3, host="elsewhere")])
        store.end_trial(study.id, trial(2, rejection=TOO_BIG, state=TrialState.REJECTED))
        found, later = store.changed_trials(study.id, mark)
        assert [t.number for t in found] == [3, 2]
        assert found[0].host == "elsewhere"
        assert later > mark

    def test_changes_of_studies_do_not_mix(self, store: Store) -> None:
        first, second = store.open_study(study_key()), store.open_study(study_key(space_revision="s2"))
        store.save_trials(first.id, [trial(0)])
        assert store.changed_trials(second.id) == ([], 0)

    def test_a_running_trial_ends_once(self, store: Store) -> None:
        study = store.open_study(study_key())
        running = trial(0, state=TrialState.RUNNING, stage=Stage.COMPILE, predicted_s=None, placement=None)
        store.save_trials(study.id, [running])
        assert store.end_trial(study.id, trial(0)) == trial(0)
        for again in (trial(0, predicted_s=9.0), replace(running, state=TrialState.INTERRUPTED)):
            assert store.end_trial(study.id, again) == trial(0)
        assert list(store.trials(study.id)) == [trial(0)]

    def test_a_trial_that_was_never_stored_ends_too(self, store: Store) -> None:
        study = store.open_study(study_key())
        assert store.end_trial(study.id, trial(5)) == trial(5)
        assert list(store.trials(study.id)) == [trial(5)]

    def test_a_late_result_is_kept_as_superseded(self, store: Store) -> None:
        study = store.open_study(study_key())
        given_up = trial(0, state=TrialState.INTERRUPTED, predicted_s=None)
        store.save_trials(study.id, [trial(0, state=TrialState.RUNNING)])
        assert store.end_trial(study.id, given_up) == given_up
        late = store.end_trial(study.id, trial(0))
        assert late == trial(0, state=TrialState.SUPERSEDED)
        assert list(store.trials(study.id)) == [late]
        assert store.end_trial(study.id, trial(0, predicted_s=9.0)) == late

    def test_aborts_add_up_for_each_key(self, store: Store) -> None:
        assert store.count_abort(content_key("a"), "SIGABRT") == 1
        assert store.count_abort(content_key("b"), "SIGABRT\0") == 1
        assert store.count_abort(content_key("a"), "SIGSEGV") == 2

    def test_a_study_that_is_not_there_is_a_key_error(self, store: Store) -> None:
        for call in (
            lambda: store.publish(task(99)),
            lambda: store.study_key(99),
            lambda: store.changed_trials(99),
            lambda: store.end_trial(99, trial()),
        ):
            with pytest.raises(KeyError, match="99"):
                call()
