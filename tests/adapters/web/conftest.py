"""A service over a database with something in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from tests.tuner.plans.samples import TOOLCHAIN, V5E_2X4, make_plan
from tuner.layouts.layout import Candidate, Layout
from tuner.rejections import Stage
from tuner.stores import StudyKey, Trial, TrialState

TOKEN = "a token that nobody guesses"


def filled(directory: Path) -> str:
    """URL of a new database with a plan and a study of three trials."""
    url = f"sqlite:///{directory / 'served.db'}"
    plan = make_plan()
    with storage.open_store(url, create=True) as store:
        study = store.open_study(StudyKey(workload=plan.workload, slice=V5E_2X4, toolchain=TOOLCHAIN))
        store.save_trials(
            study.id,
            [
                Trial(
                    number=number,
                    candidate=Candidate(layout=Layout.of({"cfg": 2, "ulysses": 4}, {"block": number})),
                    state=TrialState.COMPLETE,
                    stage=Stage.PLACE,
                    predicted_s=0.5 + number,
                )
                for number in range(3)
            ],
        )
        store.promote(plan)
    return url


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a database with a plan and a study of three trials."""
    return filled(tmp_path)


@pytest.fixture
def client(url: str) -> Iterator[TestClient]:
    """A client of the read-only service; an error of the service is an answer, as it is for everyone."""
    with TestClient(create_app(url), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def writer(url: str) -> Iterator[TestClient]:
    """A client of a service that takes writes."""
    with TestClient(create_app(url, token=TOKEN), raise_server_exceptions=False) as client:
        yield client
