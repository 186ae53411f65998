"""``python -m adapters.jax.run_worker FD [COORDINATOR COUNT INDEX]``: times steps for `adapters.jax.runner`.

Requests are (workload spec, slice, candidate, placement, directory for a trace). The worker sends ("sample", seconds)
for each block and waits for True to go on, then ("timing", timing, device kind, devices, hosts), ("rejection",
rejection), or ("error", exception) where the fault is not the candidate's. On other hosts than the first there is no
pipe, and requests come from process 0.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from adapters.jax.hosts import Hosts, Together, join
from tuner.canonical import canonical_json
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

Request = tuple[WorkloadSpec, Slice, Candidate, Placement, str]


class _Timer:
    """Builds workloads and times them."""

    def __init__(self, cluster: Together | None) -> None:
        # Not before the hosts have joined: the bench sees devices.
        from adapters.jax.bench import Bench
        from adapters.jax.step import JaxWorkload

        self._bench = Bench(cluster)
        self._workloads: dict[str, JaxWorkload] = {}

    def time(self, request: Request, on_sample: Any) -> Any:
        from adapters.models.registry import resolve

        spec, slice_, candidate, placement, trace = request
        key = canonical_json([spec.model, dict(spec.parameters)])
        if key not in self._workloads:
            self._workloads[key] = resolve(spec)
        return self._bench.time(self._workloads[key], slice_, candidate, placement, on_sample, trace=trace)


def lead(connection: Connection, cluster: Together | None) -> None:
    """Serves the runner of this host."""
    timer = _Timer(cluster)

    def on_sample(seconds: float) -> bool:
        connection.send(("sample", seconds))
        return bool(connection.recv())

    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        if cluster is not None:
            cluster.tell(_order(request))
        try:
            outcome = timer.time(request, on_sample)
        except Exception as error:  # the runner raises it
            connection.send(("error", error))
            continue
        if isinstance(outcome, Rejection):
            connection.send(("rejection", outcome))
        else:
            import jax

            devices = jax.devices()
            hosts = len({device.process_index for device in devices})
            connection.send(("timing", outcome, devices[0].device_kind, len(devices), hosts))


def follow(cluster: Together) -> None:
    """Does what process 0 does. Ends with an error when it cannot: a fresh process takes its place."""
    timer = _Timer(cluster)
    while True:
        timer.time(_request(cluster.told()), lambda seconds: False)


def _order(request: Request) -> dict[str, Any]:
    spec, slice_, candidate, placement, trace = request
    return {
        "model": spec.model,
        "parameters": dict(spec.parameters),
        "slice": [slice_.generation_name, list(slice_.shape), list(slice_.wrap), slice_.twisted],
        "candidate": candidate.to_json(),
        "placement": list(placement.devices),
        "trace": trace,
    }


def _request(order: dict[str, Any]) -> Request:
    generation, shape, wrap, twisted = order["slice"]
    return (
        WorkloadSpec(model=order["model"], parameters=order["parameters"]),
        Slice(generation_name=generation, shape=tuple(shape), wrap=tuple(wrap), twisted=twisted),
        Candidate.from_json(order["candidate"]),
        Placement(devices=tuple(order["placement"])),
        order["trace"],
    )


def main(fd: int, arguments: list[str]) -> None:
    """Serves one runner, or follows process 0."""
    hosts = Hosts.parse(arguments)
    cluster = None if hosts is None else join(hosts)
    if cluster is not None and not cluster.leads:
        follow(cluster)
    else:
        lead(Connection(fd), cluster)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except BaseException:
        import traceback

        traceback.print_exc()
        # The other hosts may be in the middle of a step: leaving must not wait for them.
        sys.stderr.flush()
        os._exit(1)
