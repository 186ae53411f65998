"""`tune tiny --slice cpu-8 --measure require`, and whether a longer second measurement keeps the order of candidates.

Prints how long the search took, and each pair of measured candidates whose medians differ by more than 10 %, with both
ratios. Fails if a pair changes its order.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from adapters.jax.runner import DeviceRunner
from adapters.measuring import Measurement, When
from adapters.search import tune
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection
from tuner.slices.names import parse_slice

SPEC, SLICE = WorkloadSpec(model="tiny"), "cpu-8"
ROUNDS, BLOCKS, DIFFERENT = 8, 5, 0.10


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(directory) / "cache")
        print(f"load average before: {os.getloadavg()[0]:.1f}")
        started = time.monotonic()
        outcome = tune(
            spec=SPEC,
            slice_name=SLICE,
            db=f"sqlite:///{directory}/tiny.db",
            measurement=Measurement(when=When.REQUIRE),
        )
        print(
            f"tune: {time.monotonic() - started:.1f} s, from cold; plan: {outcome.plan and outcome.plan.plan.evidence}"
        )
        assert outcome.measured is not None
        first = [(timed.entry, timed.trial.measured_s) for timed in outcome.measured.timed if timed.trial.measured_s]
        second: list[list[float]] = [[] for _ in first]
        with DeviceRunner(parse_slice(SLICE)) as runner:
            for _ in range(ROUNDS):  # in turns, so that what else the machine does meets all alike
                for samples, (entry, _) in zip(second, first, strict=True):
                    found = runner.measure(
                        SPEC,
                        parse_slice(SLICE),
                        entry.candidate,
                        entry.placement,
                        enough=lambda timings: len(timings) >= BLOCKS,
                    )
                    assert not isinstance(found, Rejection), found.detail
                    samples += found.samples_s
    again = list(map(statistics.median, second))
    changed = 0
    for one, other in itertools.combinations(range(len(first)), 2):
        before, after = first[other][1] / first[one][1], again[other] / again[one]
        if abs(before - 1) > DIFFERENT:
            kept = (before > 1) == (after > 1)
            changed += not kept
            layouts = f"{first[one][0].candidate.layout} | {first[other][0].candidate.layout}"
            print(f"{layouts}: {before:.2f}, again {after:.2f}{'' if kept else '  CHANGED'}")
    print(f"load average after: {os.getloadavg()[0]:.1f}; pairs that changed their order: {changed}")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
