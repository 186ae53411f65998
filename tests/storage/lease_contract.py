"""The contract of `tuner.leases` as tests, which a store inherits and gives itself to as the fixture `store`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta

import pytest

from tuner.errors import InvalidValue
from tuner.leases import Lease
from tuner.stores import Store

ME, YOU = "one/1/a", "two/2/b"


class LeaseStoreContract:
    def test_a_resource_is_held_by_one(self, store: Store) -> None:
        lease = store.claim("compile/k", owner=ME, ttl_s=60)
        assert lease is not None
        assert (lease.resource, lease.owner, lease.host, lease.claims) == ("compile/k", ME, "one", 1)
        assert lease.claimed_at.tzinfo is UTC
        assert timedelta(seconds=59.9) < lease.expires_at - lease.claimed_at < timedelta(seconds=60.1)
        assert store.claim("compile/k", owner=YOU, ttl_s=60) is None
        assert store.claim("compile/k", owner=ME, ttl_s=60) is None
        assert store.claim("compile/other", owner=YOU, ttl_s=60) is not None

    def test_what_is_released_is_free(self, store: Store) -> None:
        lease = _claimed(store, "r")
        assert store.release(lease)
        assert not store.release(lease)
        again = store.claim("r", owner=YOU, ttl_s=60)
        assert again is not None
        assert again.claims == 1

    def test_a_lease_that_ran_out_is_taken_over_and_its_holder_learns_of_it(self, store: Store) -> None:
        mine = _claimed(store, "r", ttl_s=0)
        yours = store.claim("r", owner=YOU, ttl_s=60)
        assert yours is not None
        assert (yours.owner, yours.host, yours.claims) == (YOU, "two", 2)
        assert store.renew(mine, ttl_s=60) is None
        assert not store.release(mine)
        assert store.leases() == [yours]

    def test_a_lease_that_ran_out_unnoticed_is_renewed(self, store: Store) -> None:
        mine = _claimed(store, "r", ttl_s=0)
        renewed = store.renew(mine, ttl_s=60)
        assert renewed is not None
        assert renewed.claimed_at == mine.claimed_at
        assert renewed.expires_at > mine.expires_at
        assert store.claim("r", owner=YOU, ttl_s=60) is None

    def test_a_lease_is_of_one_claim_only_as_long_as_its_owner_is_one_process(self, store: Store) -> None:
        lease = _claimed(store, "r")
        assert store.renew(replace(lease, owner=YOU), ttl_s=60) is None
        assert not store.release(replace(lease, owner=YOU))
        assert store.renew(replace(lease, resource="q"), ttl_s=60) is None

    def test_leases_by_prefix_without_those_that_ran_out(self, store: Store) -> None:
        kept = [_claimed(store, resource) for resource in ("a%/1", "a%/2", "a_/1", "b")]
        _claimed(store, "a%/0", ttl_s=0)
        assert store.leases() == kept
        assert store.leases("a%/") == kept[:2]
        assert store.leases("a_") == kept[2:3]
        assert store.leases("c") == []

    def test_leases_that_ran_out_a_day_ago_are_dropped(self, store: Store) -> None:
        _claimed(store, "old", ttl_s=-90_000)
        recent, live = _claimed(store, "recent", ttl_s=-60), _claimed(store, "live")
        assert store.drop_old_leases() == 1
        assert store.drop_old_leases() == 0
        again = store.claim("recent", owner=YOU, ttl_s=60)
        assert again is not None
        assert again.claims == recent.claims + 1
        assert [lease.resource for lease in store.leases()] == [live.resource, "recent"]
        fresh = store.claim("old", owner=YOU, ttl_s=60)
        assert fresh is not None
        assert fresh.claims == 1

    def test_a_lease_of_nothing_is_refused(self, store: Store) -> None:
        for resource, owner in (("", ME), ("r", "")):
            with pytest.raises(InvalidValue, match="a resource and an owner"):
                store.claim(resource, owner=owner, ttl_s=60)
        assert store.leases() == []

    def test_odd_names(self, store: Store) -> None:
        lease = store.claim("é\0'; DROP TABLE mw_leases; --", owner="\0x", ttl_s=60)
        assert lease is not None
        assert store.leases() == [lease]
        assert store.renew(lease, ttl_s=60) is not None
        assert store.release(lease)


def _claimed(store: Store, resource: str, ttl_s: float = 60) -> Lease:
    lease = store.claim(resource, owner=ME, ttl_s=ttl_s)
    assert lease is not None
    return lease
