"""How far a step is from what it would take with nothing but compute, nothing but memory, or nothing but network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tuner.program.program import Compute, Program
from tuner.slices.slice import Slice
from tuner.timeline.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of one step of a program, each for one resource alone.

    Attributes:
        step_s: the whole step.
        compute_s: every floating-point operation at the peak of the matrix unit, and nothing else.
        memory_s: every byte that the compiled program reads from and writes to HBM at the documented bandwidth, and
            nothing else; None if the program is not at hand.
        network_s: every collective one after another at its bound by cuts of the slice, which no placement and no
            algorithm beats, and nothing else.
        placed_s: the same as the collectives take in this placement, each with the network to itself.
    """

    step_s: float
    compute_s: float
    memory_s: float | None
    network_s: float
    placed_s: float

    @property
    def distances(self) -> Iterator[tuple[str, float, float]]:
        """Yields (name, limit in seconds, step as a multiple of it), the nearest limit first."""
        limits = {"compute": self.compute_s, "memory": self.memory_s, "network": self.network_s}
        known = [(name, seconds) for name, seconds in limits.items() if seconds]
        for name, seconds in sorted(known, key=lambda item: -item[1]):
            yield name, seconds, self.step_s / seconds

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {**asdict(self), "multiples": {name: multiple for name, _, multiple in self.distances}}


def limits(prediction: Prediction, program: Program | None, slice_: Slice) -> Limits:
    """Returns the limits of a predicted step."""
    return Limits(
        step_s=prediction.step_s,
        compute_s=prediction.peak_compute_s,
        memory_s=None if program is None else _traffic(program) / slice_.generation.hbm_bytes_per_s,
        network_s=prediction.communication_bound_s,
        placed_s=prediction.communication_s,
    )


def _traffic(program: Program) -> float:
    """Returns the HBM bytes of all operations without communication, on one device."""
    return float(sum(node.bytes * times for node, times in program.walk() if isinstance(node, Compute)))
