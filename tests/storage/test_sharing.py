"""Connections of one process: as many as a pool has, however much is opened and looked up."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import storage
from tests.storage.conftest import TABLES, execute
from tests.storage.contracts import query
from tests.storage.samples import plan, study_key

POOL = 5
"""SQLAlchemy's size of a pool."""


@pytest.fixture
def postgres_url(migrated_postgres: str) -> Iterator[str]:
    """URL of a migrated database without rows."""
    yield migrated_postgres
    execute(migrated_postgres, f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")


def settled(url: str, most: int) -> int:
    """Connections once there are no more than `most`, or after five seconds: the server sees their ends late."""
    deadline = time.monotonic() + 5
    while (found := connections(url)) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def connections(url: str) -> int:
    """Connections to the database, but for the one that asks."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_fifty_stores_hold_no_more_connections_than_one_pool(postgres_url: str) -> None:
    before = connections(postgres_url)
    with ExitStack() as stack:
        stores = [stack.enter_context(storage.open_store(postgres_url)) for _ in range(50)]
        stores[0].promote(plan())
        for number, store in enumerate(stores):
            assert store.lookup(query()).plan is not None
            store.open_study(study_key(space_revision=str(number)))
        assert settled(postgres_url, before + POOL) - before <= POOL
    assert settled(postgres_url, before) == before


def test_fifty_lookups_in_threads_keep_no_more_connections_than_one_pool(postgres_url: str) -> None:
    before = connections(postgres_url)
    with storage.open_store(postgres_url, read_only=True) as store:
        with ThreadPoolExecutor(16) as threads:
            assert len(list(threads.map(lambda _: store.lookup(query()), range(50)))) == 50
        assert settled(postgres_url, before + POOL) - before <= POOL
    assert settled(postgres_url, before) == before


def test_a_store_that_is_closed_twice_takes_nothing_from_another(url: str) -> None:
    first, second = storage.open_store(url), storage.open_store(url)
    first.close()
    first.close()
    assert second.lookup(query()).plan is None
    second.close()
