"""The pages over PostgreSQL."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from tests.adapters.web.pages.conftest import PAGES, read
from tests.storage.conftest import TABLES, execute, migrated_postgres, postgres  # noqa: F401
from tests.storage.samples import plan, study_key
from tests.storage.views.test_trials import TRIALS, made


def test_every_page(migrated_postgres: str) -> None:  # noqa: F811
    key = study_key()
    with storage.open_store(migrated_postgres) as store:
        study = store.open_study(key)
        store.save_trials(study.id, [made(number) for number in range(TRIALS)])
        store.count_refusals(study.id, {"indivisible": 3})
        store.promote(plan(2.0, study=key.name))
        store.promote(plan(1.0, study=key.name, trial=1))
    more = ("/studies.json", "/studies/1.json", "/studies/1/trials/0.json", "/overview.json")
    try:
        with TestClient(create_app(migrated_postgres)) as client:
            for page in (
                *PAGES,
                "/studies/1?sort=-memory&after=1",
                "/studies/1?text=HOST",
                "/?text=WAN&sort=speedup",
                *more,
            ):
                if "trials/3/placement" in page:
                    continue
                answer = client.get(page)
                assert answer.status_code == 200, (page, answer.text)
                if page.endswith(".json"):
                    json.loads(answer.text, parse_constant=pytest.fail)
                else:
                    read(answer.text)
            assert client.get("/studies/1/trials.csv").text.count("\n") == TRIALS + 1
            assert client.get("/plans.csv").text.count("\n") == 2
    finally:
        execute(migrated_postgres, f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")
