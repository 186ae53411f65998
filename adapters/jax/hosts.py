"""Several hosts that measure together: one process on each, all at the same step of the same trial.

Process 0 decides. What it decides, and how each host fared, goes through the key-value store of `jax.distributed`'s
coordinator, not through the devices: it must still work when a device does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.errors import InvalidValue
from tuner.rejections import Rejection, RejectReason, Stage

ANSWER_S = 120.0
"""Time for every host to say how it fared at one part of a trial."""

_POLL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The processes of a slice that spans hosts.

    Attributes:
        coordinator: ``host:port`` where process 0 listens.
        count: of processes, one on each host.
        index: of this one.
    """

    coordinator: str
    count: int
    index: int = 0

    def __post_init__(self) -> None:
        host, colon, port = self.coordinator.rpartition(":")
        if not (host and colon and port.isdigit()):
            raise InvalidValue(f"coordinator {self.coordinator!r} is not like host:port")
        if not 0 <= self.index < self.count:
            raise InvalidValue(f"process {self.index} of {self.count}; 0 to {self.count - 1} are legal")

    def arguments(self) -> list[str]:
        """Returns what a child process is told."""
        return [self.coordinator, str(self.count), str(self.index)]

    @classmethod
    def parse(cls, arguments: list[str]) -> Hosts | None:
        """Reads what `arguments` wrote; None if there is nothing."""
        if not arguments:
            return None
        coordinator, count, index = arguments
        return cls(coordinator=coordinator, count=int(count), index=int(index))


class Cluster(Protocol):
    """How a bench keeps in step with other hosts. Every host must call the same methods in the same order."""

    @property
    def leads(self) -> bool:
        """True on process 0."""

    @property
    def count(self) -> int:
        """Processes."""

    def agree(self, own: Rejection | None) -> Rejection | None:
        """Returns a rejection on every host if any host has one, else None."""

    def decide(self, value: int) -> int:
        """Returns process 0's value on every host."""


class Alone:
    """One host."""

    leads = True
    count = 1

    def agree(self, own: Rejection | None) -> Rejection | None:
        """Returns its own."""
        return own

    def decide(self, value: int) -> int:
        """Returns its own."""
        return value


class Together:
    """Processes that `jax.distributed` has joined.

    Args:
        client: the coordinator's client (``key_value_set``, ``blocking_key_value_get``).
        count: of processes.
        index: of this one.
        timeout_s: for the others to answer.
    """

    def __init__(self, client: Any, count: int, index: int, *, timeout_s: float = ANSWER_S) -> None:
        self._client = client
        self._index = index
        self._timeout_ms = int(timeout_s * 1000)
        self._turn = 0
        self._order = 0
        self.count = count

    @property
    def leads(self) -> bool:
        """True on process 0."""
        return self._index == 0

    def agree(self, own: Rejection | None) -> Rejection | None:
        """Returns the rejection of the first host that has one, or that did not answer."""
        turn = self._next()
        self._client.key_value_set(f"{turn}/{self._index}", "" if own is None else _document(own))
        for index in range(self.count):
            try:
                said = self._client.blocking_key_value_get(f"{turn}/{index}", self._timeout_ms)
            except Exception as error:  # its type is jaxlib's own
                return own or _silent(index, self._timeout_ms / 1000, error)
            if said and own is None:
                own = _rejection(said, index)
        return own

    def decide(self, value: int) -> int:
        """Returns process 0's value."""
        turn = self._next()
        if self.leads:
            self._client.key_value_set(turn, str(value))
            return value
        return int(self._client.blocking_key_value_get(turn, self._timeout_ms))

    def tell(self, order: dict[str, Any]) -> None:
        """Gives the others their next order. Only process 0 does."""
        self._order += 1
        self._client.key_value_set(f"meshwright/order/{self._order}", json.dumps(order))

    def told(self) -> dict[str, Any]:
        """Waits for the next order of process 0, however long; the process ends when the coordinator is gone."""
        self._order += 1
        while True:
            try:
                text = self._client.blocking_key_value_get(f"meshwright/order/{self._order}", int(_POLL_S * 1000))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
                continue
            order: dict[str, Any] = json.loads(text)
            return order

    def _next(self) -> str:
        self._turn += 1
        return f"meshwright/turn/{self._turn}"


def join(hosts: Hosts) -> Together:
    """Joins the processes of several hosts; returns when all are there. To be called before JAX sees a device."""
    import jax
    from jax._src import distributed  # the key-value store has no public name; checked on jax 0.10.2 and 0.12.0.1

    jax.distributed.initialize(coordinator_address=hosts.coordinator, num_processes=hosts.count, process_id=hosts.index)
    return Together(distributed.global_state.client, hosts.count, hosts.index)


def _document(rejection: Rejection) -> str:
    numbers = dict(rejection.numbers)
    return json.dumps(
        {"stage": rejection.stage, "reason": rejection.reason, "detail": rejection.detail, "numbers": numbers}
    )


def _rejection(text: str, index: int) -> Rejection:
    document = json.loads(text)
    return Rejection(
        stage=Stage(document["stage"]),
        reason=RejectReason(document["reason"]),
        detail=f"on host {index}: {document['detail']}",
        numbers=document["numbers"],
    )


def _silent(index: int, waited_s: float, error: Exception) -> Rejection:
    return Rejection(
        stage=Stage.MEASURE,
        reason=RejectReason.DEVICE_LOST,
        detail=f"host {index} did not answer within {waited_s:g} s: {' '.join(str(error).split())[:200]}",
        numbers={"host": index, "waited_s": waited_s},
    )
