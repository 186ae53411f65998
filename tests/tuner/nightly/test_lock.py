from __future__ import annotations

import threading
import time

import pytest

from storage.memory import MemoryStore
from tuner.errors import StoreError
from tuner.leases import Lease
from tuner.nightly.lock import RESOURCE, NightLock, NightRuns


def wait_until(true: object, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.005)
    return False


def test_two_nights_do_not_overlap_and_the_second_says_who_holds_the_lock() -> None:
    store = MemoryStore()
    said = r"a night on builder is running; its lock runs out at .* unless renewed"
    with NightLock(store, ttl_s=60, owner="builder/1/a"), pytest.raises(NightRuns, match=said):
        NightLock(store, ttl_s=60).__enter__()
    with NightLock(store, ttl_s=60):
        pass
    assert store.leases() == []


def test_the_lock_of_a_night_that_was_killed_runs_out() -> None:
    store = MemoryStore()
    assert store.claim(RESOURCE, owner="dead/1/a", ttl_s=0.05)
    with pytest.raises(NightRuns):
        NightLock(store, ttl_s=60).__enter__()
    time.sleep(0.06)
    with NightLock(store, ttl_s=60) as lock:
        assert not lock.lost


def test_it_is_renewed_as_long_as_the_night_runs() -> None:
    store = MemoryStore()
    with NightLock(store, ttl_s=0.2) as lock:
        time.sleep(0.5)
        assert not lock.lost
        assert len(store.leases()) == 1


def test_a_lock_that_another_took_is_lost_and_is_not_released() -> None:
    store = MemoryStore()
    with NightLock(store, ttl_s=0.2) as lock:
        (mine,) = store.leases()
        store.release(mine)
        assert store.claim(RESOURCE, owner="other/2/b", ttl_s=60)
        assert wait_until(lambda: lock.lost)
    assert lock.lost
    assert [lease.owner for lease in store.leases()] == ["other/2/b"]


def test_a_database_that_is_away_is_asked_again_while_the_lease_holds() -> None:
    class Away(MemoryStore):
        gone = threading.Event()
        asked = 0

        def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
            self.asked += 1
            if self.gone.is_set():
                raise StoreError("away")
            return super().renew(lease, ttl_s=ttl_s)

        def release(self, lease: Lease) -> bool:
            raise StoreError("away")

    store = Away()
    store.gone.set()
    with NightLock(store, ttl_s=0.4) as lock:
        assert wait_until(lambda: store.asked >= 1)
        assert not lock.lost
        store.gone.clear()
        asked = store.asked
        assert wait_until(lambda: store.asked >= asked + 5)
        assert not lock.lost
        store.gone.set()
        assert wait_until(lambda: lock.lost)
