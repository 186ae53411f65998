"""``python -m adapters.jax.screen.worker FD DEVICES``: screens candidates for `pool` until the pipe closes.

Requests are (workload spec, candidate); replies an outcome, or an exception where the workload itself cannot be built.
"""

from __future__ import annotations

import gc
import sys
from multiprocessing.connection import Connection

import jax

from adapters.jax.screen.screening import screen
from adapters.jax.step import JaxWorkload
from adapters.models.registry import resolve
from tuner.canonical import canonical_json

# Traces and lowerings of a candidate are never asked for again, but JAX keeps them. Collecting garbage while tracing
# takes a tenth of the time and finds little.
_CLEAR_EVERY = 100


def main(fd: int, devices: int) -> None:
    """Serves one pool."""
    jax.config.update("jax_num_cpu_devices", devices)
    connection = Connection(fd)
    gc.disable()
    workloads: dict[str, JaxWorkload] = {}
    served = 0
    while True:
        try:
            spec, candidate = connection.recv()
        except EOFError:
            return
        key = canonical_json([spec.model, dict(spec.parameters)])
        try:
            if key not in workloads:
                workloads[key] = resolve(spec)
            connection.send(screen(workloads[key], candidate))
        except Exception as error:  # the pool raises it
            connection.send(error)
        served += 1
        if served % _CLEAR_EVERY == 0:
            jax.clear_caches()
            gc.collect()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
