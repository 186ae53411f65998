"""What a device took: samples of one step, and what is said of them.

A sample is the mean step of one block of steps between two waits for the device. Blocks are summed up by median and
quartiles, because a step that was disturbed takes longer and none takes shorter.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import InvalidValue
from tuner.plans.toolchain import Toolchain

STEADY = 0.05
"""Share of the median by which the medians of the two halves of steady samples may differ."""

_LEAST = 4


def is_steady(samples_s: Sequence[float], *, tolerance: float = STEADY) -> bool:
    """Returns whether a device had settled: the medians of the earlier and the later half of at least 4 samples agree.

    Too few samples are not steady: nothing is known.
    """
    if len(samples_s) < _LEAST:
        return False
    half = len(samples_s) // 2
    earlier, later = statistics.median(samples_s[:half]), statistics.median(samples_s[-half:])
    return abs(later - earlier) <= tolerance * statistics.median(samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Step times of one candidate in one placement on real devices.

    Attributes:
        samples_s: seconds of a step, one for each block, in the order of timing.
        steps: in each block.
        warmup: steps before the first block.
        device_kind: what JAX calls the devices; ``cpu`` for CPU devices, whose times are never those of a TPU.
        devices, hosts: that ran it.
        host: that decided and kept the time.
        toolchain: that compiled it.
        compile_s: lowering and compiling.
        warm: whether the executable was there already, in this process or in the compilation cache.
        difference: largest difference of the sharded step from the unsharded one on the reduced model, as a share of
            the largest value; None if it was not checked, and `unchecked` then says why.
        unchecked: why it was not checked.
        donated: whether the result took the buffers of the arguments, as it does in use.
        trace: directory of the profiler's trace; empty if none was asked for.
    """

    samples_s: tuple[float, ...]
    steps: int
    warmup: int
    device_kind: str
    devices: int
    host: str
    toolchain: Toolchain
    hosts: int = 1
    compile_s: float = 0.0
    warm: bool = False
    difference: float | None = None
    unchecked: str = ""
    donated: bool = True
    trace: str = ""

    def __post_init__(self) -> None:
        if not self.samples_s or not all(0 < sample < float("inf") for sample in self.samples_s):
            raise InvalidValue(f"samples {self.samples_s[:8]}; one or more finite times above 0 s are legal")

    @property
    def median_s(self) -> float:
        """The median sample: what the step takes."""
        return statistics.median(self.samples_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The first and the third quartile of the samples."""
        if len(self.samples_s) == 1:
            return self.samples_s[0], self.samples_s[0]
        first, _, third = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return first, third

    @property
    def steady(self) -> bool:
        """Whether the medians of both halves agree."""
        return is_steady(self.samples_s)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document: everything, and what follows from it."""
        return {
            "samples_s": list(self.samples_s),
            "median_s": self.median_s,
            "quartiles_s": list(self.quartiles_s),
            "steady": self.steady,
            "steps": self.steps,
            "warmup": self.warmup,
            "device_kind": self.device_kind,
            "devices": self.devices,
            "hosts": self.hosts,
            "host": self.host,
            "toolchain": self.toolchain.to_json(),
            "compile_s": self.compile_s,
            "warm": self.warm,
            "difference": self.difference,
            "unchecked": self.unchecked,
            "donated": self.donated,
            "trace": self.trace,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Measured:
        """Reads what `to_json` wrote. Raises InvalidValue on a document with parts missing."""
        derived = ("median_s", "quartiles_s", "steady")
        try:
            return cls(
                **{
                    **{name: value for name, value in document.items() if name not in derived},
                    "samples_s": tuple(map(float, document["samples_s"])),
                    "toolchain": Toolchain.from_json(document["toolchain"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise InvalidValue(f"measurement is incomplete or malformed: {error!r}") from error
