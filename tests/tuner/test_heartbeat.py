import logging
import threading
from collections.abc import Iterator

import pytest

from storage.memory import MemoryStore
from tuner.errors import InvalidValue, StoreError
from tuner.heartbeat import Heartbeat
from tuner.leases import Lease


class FlakyStore(MemoryStore):
    """Fails as often as it is told to."""

    failures = 0
    renewals = 0

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        self.renewals += 1
        if self.failures:
            self.failures -= 1
            raise StoreError("the database is locked")
        return super().renew(lease, ttl_s=ttl_s)

    def release(self, lease: Lease) -> bool:
        if self.failures:
            raise StoreError("the database is locked")
        return super().release(lease)


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


@pytest.fixture
def heartbeat(store: FlakyStore) -> Iterator[Heartbeat]:
    with Heartbeat(store, ttl_s=3600) as heartbeat:
        yield heartbeat


def test_what_is_claimed_is_held_until_it_is_released(store: FlakyStore, heartbeat: Heartbeat) -> None:
    assert heartbeat.claim("r") is not None
    assert heartbeat.claim("r") is None
    assert heartbeat.holds("r")
    heartbeat.release("r")
    heartbeat.release("r")
    assert not heartbeat.holds("r")
    assert store.leases() == []


def test_a_failed_renewal_is_logged_and_tried_again(
    store: FlakyStore, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    first = heartbeat.claim("r")
    assert first is not None
    store.failures = 2
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            heartbeat.beat()
    assert caplog.text.count("could not renew the lease of r, trying again: the database is locked") == 2
    assert heartbeat.holds("r")
    assert store.leases()[0].expires_at > first.expires_at


def test_a_lease_that_somebody_else_took_is_known_to_be_lost(
    store: FlakyStore, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    lease = heartbeat.claim("r")
    assert lease is not None
    store.renew(lease, ttl_s=0)
    taken = store.claim("r", owner="other", ttl_s=60)
    heartbeat.beat()
    assert "lost the lease of r" in caplog.text
    assert not heartbeat.holds("r")
    heartbeat.close()
    assert store.leases() == [taken]


def test_a_lease_is_not_believed_in_for_longer_than_the_database_does(store: FlakyStore) -> None:
    now = [100.0]
    with Heartbeat(store, ttl_s=60, clock=lambda: now[0]) as heartbeat:
        heartbeat.claim("r")
        now[0] += 59
        assert heartbeat.holds("r")
        now[0] += 1
        assert not heartbeat.holds("r")
        heartbeat.beat()
        assert heartbeat.holds("r")


def test_the_thread_renews_by_itself(store: FlakyStore) -> None:
    renewed = threading.Event()

    class Told(FlakyStore):
        def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            try:
                return super().renew(lease, ttl_s=ttl_s)
            finally:
                if self.renewals == 3:
                    renewed.set()

    told = Told()
    told.failures = 1
    with Heartbeat(told, ttl_s=0.02) as heartbeat:
        heartbeat.claim("r")
        assert renewed.wait(10)
    assert told.leases() == []


def test_a_release_that_fails_is_left_to_run_out(
    store: FlakyStore, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat.claim("r")
    store.failures = 1
    heartbeat.close()
    assert "could not release r, its lease will run out" in caplog.text


def test_a_time_to_live_of_nothing_is_refused(store: FlakyStore) -> None:
    with pytest.raises(InvalidValue, match="more than 0"):
        Heartbeat(store, ttl_s=0)
