"""The contract of `tuner.measurements` as tests; a store inherits it and gives itself as the fixture `store`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.storage.samples import NOON, NOON_ELSEWHERE, plan
from tuner.errors import InvalidValue
from tuner.measurements import Measurement, Source
from tuner.stores import Store


def measurement(**changes: Any) -> Measurement:
    made = plan()
    values: dict[str, Any] = {
        "source": Source.TRIAL,
        "workload": made.workload,
        "slice": made.slice,
        "toolchain": made.toolchain,
        "candidate": made.candidate,
        "placement": made.placement,
        "device_kind": "TPU v5 lite",
        "samples_s": (0.5, 0.25, 0.75),
        "step_s": 0.5,
        "predicted_s": 0.4,
        "count": 3,
        "host": "host-1",
        "study": "a study",
        "trial": 7,
        "details": {"steady": True, "quartiles_s": [0.25, 0.75]},
        "observed_at": NOON,
    }
    return Measurement(**values | changes)


class MeasurementStoreContract:
    def test_a_measurement_comes_back_whole(self, store: Store) -> None:
        stored = store.save_measurement(measurement())
        assert stored.id > 0
        assert store.measurements() == [stored]
        assert replace(stored, id=0) == measurement()
        assert stored.ratio == pytest.approx(1.25)

    def test_newest_come_first_and_each_question_narrows(self, store: Store) -> None:
        kept = store.promote(plan())
        trial = store.save_measurement(measurement())
        report = store.save_measurement(
            measurement(source=Source.PRODUCTION, plan_id=kept.id, study="", trial=-1, samples_s=(), count=500)
        )
        assert store.measurements() == [report, trial]
        assert store.measurements(limit=1) == [report]
        assert store.measurements(source=Source.PRODUCTION) == [report]
        assert store.measurements(plan_id=kept.id) == [report]
        assert store.measurements(plan_id=kept.id, source=Source.TRIAL) == []
        assert store.measurements(study="a study") == [trial]
        assert store.measurements(slice_name=trial.slice.name) == [report, trial]
        assert store.measurements(slice_name="v5p-2x2x1") == []

    def test_times_are_utc_and_a_missing_one_is_now(self, store: Store) -> None:
        elsewhere = store.save_measurement(measurement(observed_at=NOON_ELSEWHERE)).observed_at
        now = store.save_measurement(measurement(observed_at=None)).observed_at
        assert elsewhere is not None
        assert now is not None
        assert (elsewhere, elsewhere.utcoffset(), now.utcoffset()) == (
            NOON_ELSEWHERE,
            NOON.utcoffset(),
            NOON.utcoffset(),
        )

    def test_a_report_promotes_nothing(self, store: Store) -> None:
        kept = store.promote(plan(2.0))
        store.save_measurement(measurement(source=Source.PRODUCTION, plan_id=kept.id, step_s=0.001, samples_s=()))
        assert store.active(kept.plan) == kept
        assert store.plan(kept.id).plan.step_s == 2.0

    @pytest.mark.parametrize(
        ("changes", "wrong"),
        [
            ({"step_s": 0.0}, "above 0 s"),
            ({"samples_s": (1.0, float("nan"))}, "above 0 s"),
            ({"count": 2}, "2 samples, of which 3 are kept"),
            ({"device_kind": "cpu"}, "'cpu' devices are not times of v5e"),
        ],
    )
    def test_what_is_no_measurement(self, changes: dict[str, Any], wrong: str) -> None:
        with pytest.raises(InvalidValue, match=wrong):
            measurement(**changes)
