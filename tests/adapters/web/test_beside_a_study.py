"""A service on a database that a study is writing to: it changes nothing, and nobody waits for it."""

import threading
import time

from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from tests.tuner.plans.samples import TOOLCHAIN, V5E_2X4, make_plan
from tuner.layouts.layout import Candidate, Layout
from tuner.rejections import Stage
from tuner.stores import StudyKey, Trial, TrialState

TRIALS = 150
PATHS = ("/v1/plans/wan/832x480x81/v5e-2x4", "/v1/trials?study=1", "/studies/1", "/", "/readyz")


def test_a_hundred_readings_a_second_do_not_stop_a_study(url: str) -> None:
    done = threading.Event()
    statuses: list[int] = []

    def read() -> None:
        with TestClient(create_app(url)) as client:
            while not done.is_set():
                statuses.extend(client.get(path).status_code for path in PATHS)
                time.sleep(0.02)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    slowest_s = 0.0
    try:
        with storage.open_store(url) as store:
            study = store.open_study(
                StudyKey(workload=make_plan().workload, slice=V5E_2X4, toolchain=TOOLCHAIN, space_revision="written")
            )
            for number in range(TRIALS):
                candidate = Candidate(layout=Layout.of({"ulysses": 8}, {"block": number}))
                trial = Trial(number=number, candidate=candidate, state=TrialState.COMPLETE, stage=Stage.PLACE)
                started = time.monotonic()
                store.save_trials(study.id, [trial])
                slowest_s = max(slowest_s, time.monotonic() - started)
            assert len(store.trials(study.id)) == TRIALS
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert set(statuses) == {200}
    assert slowest_s < 10, "a writer waited for a reader"
