"""A predicted step: its time and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tuner.program.program import CollectiveKind

MOST_LINKS = 256
"""Links that a prediction keeps: all of a slice of 64 chips in two dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """One collective of the program.

    Attributes:
        name: the instruction.
        kind: as compiled.
        axes: mesh axes that its groups span, outermost first.
        times: executions in a step.
        operand_bytes: of one execution on one device.
        alone_s: one execution with the network to itself.
        bound_s: least time of one execution by cuts of the slice, for any algorithm.
        exposed_s: what the step waits for it, over all executions.
        busiest_link: the link that decides, for example ``0,0->1,0``; empty if nothing is sent.
        busiest_bytes: bytes of one execution on it.
    """

    name: str
    kind: CollectiveKind
    axes: tuple[str, ...]
    times: int
    operand_bytes: int
    alone_s: float
    bound_s: float
    exposed_s: float
    busiest_link: str
    busiest_bytes: float

    @property
    def axis_label(self) -> str:
        """``tensor``, ``cfg+ulysses``, or ``-`` for groups of one device."""
        return "+".join(self.axes) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """One directed link over one step.

    Attributes:
        name: for example ``0,0->1,0``.
        busy_s: how long it is busy, all collectives one after another.
        by_axes: (mesh axes, seconds) of those whose collectives cross it, longest first.
    """

    name: str
    busy_s: float
    by_axes: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One step of a program under one placement. Seconds are of the whole step, bytes of one device and step.

    Attributes:
        step_s: the whole step.
        matmul_s: matrix products.
        memory_s: memory-bound operations.
        copy_s: layout changes.
        attention_s: attention kernels.
        kernel_s: other kernels.
        exposed_communication_s: what the step waits for collectives.
        communication_s: collectives one after another, each with the network to itself.
        communication_bound_s: the same with each at its bound by cuts.
        peak_compute_s: all floating-point operations at the peak: no step can be faster.
        received_bytes: bytes that one device receives under ring accounting.
        links: directed links of the slice.
        idle_links: those that carry nothing in the whole step.
        busiest_link: the one that is busy longest over the step; empty if none carries anything.
        busiest_link_s: how long.
        unknown_kernels: names of kernels without a table of cycles, which are guessed from their operations.
        collectives: by time that the step waits for them, longest first.
        busy_links: links that carry something, the busiest first; at most `MOST_LINKS` of them.
    """

    step_s: float
    matmul_s: float
    memory_s: float
    copy_s: float
    attention_s: float
    kernel_s: float
    exposed_communication_s: float
    communication_s: float
    communication_bound_s: float
    peak_compute_s: float
    received_bytes: float
    links: int
    idle_links: int
    busiest_link: str
    busiest_link_s: float
    unknown_kernels: tuple[str, ...] = ()
    collectives: tuple[CollectiveTime, ...] = ()
    busy_links: tuple[LinkTraffic, ...] = ()

    @property
    def compute_s(self) -> float:
        """Everything on the chip but attention: matrix products, memory, copies, other kernels."""
        return self.matmul_s + self.memory_s + self.copy_s + self.kernel_s

    @property
    def exposed_by_axes(self) -> dict[str, float]:
        """Exposed seconds of each set of mesh axes, longest first."""
        out: dict[str, float] = {}
        for collective in self.collectives:
            out[collective.axis_label] = out.get(collective.axis_label, 0.0) + collective.exposed_s
        return dict(sorted(out.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document; `compute_s` and `exposed_by_axes` are in it for readers."""
        return {**asdict(self), "compute_s": self.compute_s, "exposed_by_axes": self.exposed_by_axes}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Prediction:
        """Reads what `to_json` wrote; unknown fields are left out."""
        known = {field.name: document[field.name] for field in fields(cls) if field.name in document}
        known["unknown_kernels"] = tuple(known.get("unknown_kernels", ()))
        known["collectives"] = tuple(
            CollectiveTime(**{**item, "kind": CollectiveKind(item["kind"]), "axes": tuple(item["axes"])})
            for item in known.get("collectives", ())
        )
        known["busy_links"] = tuple(
            LinkTraffic(**{**item, "by_axes": tuple((label, seconds) for label, seconds in item["by_axes"])})
            for item in known.get("busy_links", ())
        )
        return cls(**known)
