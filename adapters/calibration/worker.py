"""``python -m adapters.calibration.worker FD``: times benchmarks for `adapters.calibration.session`.

Requests are (slice, benchmark). Replies are ("timed", program, placement, samples, device kind), ("refused", reason)
where the benchmark cannot run, or ("error", exception) where the devices are not the slice.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection


def serve(connection: Connection) -> None:
    """Answers requests until the other end closes."""
    import jax

    from adapters.calibration.timing import timed
    from adapters.jax.live import WrongDevices

    while True:
        try:
            slice_, benchmark = connection.recv()
        except EOFError:
            return
        try:
            if slice_.generation.has_links and jax.devices()[0].platform == "cpu":
                raise WrongDevices(f"{slice_.name} cannot be measured on CPU devices; there is no TPU attached")
            program, placement, samples = timed(benchmark, slice_)
        except WrongDevices as error:
            connection.send(("error", error))
        except Exception as error:  # a benchmark that the compiler or a device refuses says nothing of the others
            connection.send(("refused", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"))
        else:
            connection.send(("timed", program, placement, samples, jax.devices()[0].device_kind))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
