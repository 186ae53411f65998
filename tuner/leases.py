"""Leases: who works on what, so that several processes on several hosts share a database without a scheduler.

A lease is held until it is released or runs out. Whether it has run out is judged by one clock, that of the database
(an SQLite file is used on one host, whose clock it is), never by the clocks of the hosts that hold or want it. A holder
counts `ttl_s` on its own monotonic clock from the moment before it asked, so it never believes in a lease for longer
than the database does.
"""

from __future__ import annotations

import abc
import os
import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tuner.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one owner to work on a resource.

    Attributes:
        resource: what is held, a path by convention: ``compile/<content key>``, ``nightly``, ``measure/<slice>``.
        owner: who holds it; unique to a process, or to a thread of one where these compete (`new_owner`).
        host: where the owner runs.
        claims: how often the resource was claimed since it was last released: 1, and one more for each owner who
            vanished without releasing it.
        claimed_at, expires_at: by the database's clock, aware, in UTC.
    """

    resource: str
    owner: str
    host: str
    claims: int
    claimed_at: datetime
    expires_at: datetime

    def __post_init__(self) -> None:
        if not self.resource or not self.owner:
            raise InvalidValue(f"a lease needs a resource and an owner, got {self.resource!r} and {self.owner!r}")


def new_owner() -> str:
    """Returns a name that no other process has or will have: host, process and a random part."""
    return f"{platform.node()}/{os.getpid()}/{secrets.token_hex(4)}"


def host_of(owner: str) -> str:
    """Returns the host in a name that `new_owner` made; empty if there is none."""
    host, slash, _ = owner.partition("/")
    return host if slash else ""


class LeaseStore(abc.ABC):
    """Leases in a database. Every method is atomic: of any number of processes that claim at once, one succeeds."""

    @abc.abstractmethod
    def claim(self, resource: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Returns the lease if the resource was free or its lease had run out, None while somebody holds it.

        The holder gets None too: it renews. A lease of 0 s has run out at once.
        """

    @abc.abstractmethod
    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Returns the lease with `ttl_s` seconds more from now, or None if it was lost.

        It is lost when it was released or somebody else has claimed it; one that ran out unnoticed is renewed.
        """

    @abc.abstractmethod
    def release(self, lease: Lease) -> bool:
        """Frees the resource; returns False, and changes nothing, if the lease was lost."""

    @abc.abstractmethod
    def leases(self, prefix: str = "") -> Sequence[Lease]:
        """Returns the leases that have not run out of resources that begin with `prefix`, in order of resource."""
