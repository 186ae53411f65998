"""``python -m adapters.jax.compile_worker FD``: compiles for `adapters.jax.pool` until the pipe closes.

Requests are (workload spec, slice, candidate, whether the text is wanted). The worker sends ("digest", digest) before
it compiles and waits for True if the result is known; then ("outcome", outcome, compressed text), or ("error",
exception) where the fault is not the candidate's.
"""

from __future__ import annotations

import sys
import zlib
from multiprocessing.connection import Connection

import jax

from adapters.jax.compile import compile_candidate
from adapters.jax.step import JaxWorkload
from adapters.models.registry import resolve
from tuner.canonical import canonical_json

# Traces of a candidate are never asked for again, but JAX keeps them.
_CLEAR_EVERY = 20


def main(fd: int) -> None:
    """Serves one pool."""
    connection = Connection(fd)
    workloads: dict[str, JaxWorkload] = {}
    served = 0

    def known(digest: str) -> bool:
        connection.send(("digest", digest))
        return bool(connection.recv())

    while True:
        try:
            spec, slice_, candidate, wanted = connection.recv()
        except EOFError:
            return
        key = canonical_json([spec.model, dict(spec.parameters)])
        try:
            if key not in workloads:
                workloads[key] = resolve(spec)
            outcome, text = compile_candidate(workloads[key], slice_, candidate, known)
            packed = zlib.compress(text.encode()) if wanted and text else b""
            connection.send(("outcome", outcome, packed))
        except Exception as error:  # the pool raises it
            connection.send(("error", error))
        served += 1
        if served % _CLEAR_EVERY == 0:
            jax.clear_caches()


if __name__ == "__main__":
    main(int(sys.argv[1]))
