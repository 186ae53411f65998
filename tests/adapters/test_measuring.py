"""A search that measures, on real CPU devices from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

import storage
from adapters.measuring import Measurement, NotMeasured, When, measuring
from adapters.search import tune
from tuner.measurements import Source
from tuner.plans.lookup import Query, Rung
from tuner.plans.plan import Evidence
from tuner.ports import WorkloadSpec
from tuner.production import Report, report, reports
from tuner.search.events import Event, TrialMeasured
from tuner.search.outcome import Outcome
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice

SPEC = WorkloadSpec(model="tests.adapters.jax.runnable:fine_slow")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Outcome, str, list[Event]]]:
    directory = tmp_path_factory.mktemp("measured")
    url, events = f"sqlite:///{directory / 'm.db'}", list[Event]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(directory / "cache"))
        outcome = tune(
            spec=SPEC,
            slice_name="cpu-4",
            db=url,
            settings=Settings(budget_s=None, patience=None, slack=None),
            listener=events.append,
            measurement=Measurement(when=When.REQUIRE, timeout_s=120.0),
            jobs=2,
        )
        yield outcome, url, events


def test_the_plan_rests_on_cpu_devices_and_says_so(run: tuple[Outcome, str, list[Event]]) -> None:
    outcome, _, _ = run
    assert outcome.plan is not None
    plan = outcome.plan.plan
    assert plan.evidence is Evidence.MEASURED
    assert plan.slice.name == "cpu-4"
    assert plan.measurement["device_kind"] == "cpu"
    assert plan.predicted_s is not None
    assert plan.ratio is not None
    assert outcome.measured is not None
    assert outcome.measured.best is not None
    assert outcome.measured.predicted == len(outcome.trials)


def test_every_measurement_is_told_and_kept(run: tuple[Outcome, str, list[Event]]) -> None:
    outcome, url, events = run
    assert outcome.measured is not None
    told = [event for event in events if isinstance(event, TrialMeasured)]
    assert len(told) == len(outcome.measured.timed)
    with storage.open_store(url) as store:
        rows = store.measurements(source=Source.TRIAL, slice_name="cpu-4")
    assert {row.trial for row in rows} == {event.trial.number for event in told}
    assert {row.device_kind for row in rows} == {"cpu"}


def test_cpu_times_never_serve_a_tpu_slice(run: tuple[Outcome, str, list[Event]]) -> None:
    _, url, _ = run
    with storage.open_store(url) as store:
        assert store.lookup(Query(model="slow", shape="", slice_name="cpu-4")).rung is Rung.UNCHECKED
        for slice_name in ("v5e-2x2", "v5p-2x2x1"):
            assert store.lookup(Query(model="slow", shape="", slice_name=slice_name)).plan is None


def test_what_production_observed_stands_beside_the_plan(run: tuple[Outcome, str, list[Event]]) -> None:
    outcome, url, _ = run
    assert outcome.plan is not None
    with storage.open_store(url) as store:
        before = store.plan(outcome.plan.id)
        kept = report(store, before.id, Report(step_s=0.001, samples=50, host="serving-3"))
        assert reports(store, before) == [kept]
        assert (kept.device_kind, kept.count, kept.source) == ("cpu", 50, Source.PRODUCTION)
        assert kept.ratio == pytest.approx(0.001 / before.plan.predicted_s)
        assert store.plan(before.id) == before
        assert store.active(before.plan) == before
        with pytest.raises(ValueError, match="does not run on 'TPU v5e'"):
            report(store, before.id, Report(step_s=0.001, device_kind="TPU v5e"))


def asked(when: When, slice_name: str):  # type: ignore[no-untyped-def]
    store = storage.open_store("memory://")
    return measuring(Measurement(when=when), parse_slice(slice_name), store, optuna.storages.InMemoryStorage)


def test_without_a_tpu_a_tpu_slice_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.measuring.chips_attached", lambda: False)
    with asked(When.AUTO, "v5e-2x4") as measure:
        assert measure is None
    with pytest.raises(NotMeasured, match="no TPU is attached to this host"), asked(When.REQUIRE, "v5e-2x4"):
        pass


def test_never_is_never() -> None:
    with asked(When.NEVER, "cpu-8") as measure:
        assert measure is None


def test_recordings_are_files_that_another_search_can_replay(
    run: tuple[Outcome, str, list[Event]], tmp_path: Path
) -> None:
    from tuner.search.recorded import RecordedRunner, Recording

    outcome, url, _ = run
    assert outcome.plan is not None
    with storage.open_store(url) as store:
        recording = Recording.of(store.measurements(source=Source.TRIAL))
    runner = RecordedRunner(Recording.from_json(recording.to_json()), outcome.plan.plan.toolchain)
    again = tune(
        spec=SPEC,
        slice_name="cpu-4",
        db=f"sqlite:///{tmp_path / 'again.db'}",
        settings=Settings(budget_s=None, patience=None, slack=None),
        measurement=Measurement(when=When.REQUIRE, runner=runner),
        jobs=2,
    )
    assert again.plan is not None
    assert again.plan.plan.measurement["host"] == "recording"
    assert runner.runs > 0
