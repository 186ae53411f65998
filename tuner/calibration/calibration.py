"""Constants of the compute and network models, one record for each generation, each with its source.

Nothing here was measured by meshwright: the figures come from published measurements and from the compiler's own cost
model until `calibrate` replaces them on a device. The network has few constants on purpose: one launch floor for a
generation and operation, one efficiency of the links and one hop latency for a generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue, UnknownName
from tuner.program.program import CollectiveKind

MODEL_REVISION = 1
"""Of the formulas of `tuner.network` and `tuner.timeline`: raise it when the same program predicts another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants of one generation.

    Attributes:
        generation: its name.
        link_bytes_per_s: what one ICI link can carry in one direction at best.
        link_efficiency: share of it that large messages reach.
        hop_s: latency of one hop.
        launch_s: floor of one collective, whatever its size.
        launches: (kind of collective, floor in seconds) where a kind has a floor of its own.
        shared_link_efficiency: share of its sustained rate that a link keeps where several transfers of one permute or
            exchange cross it at once. Rings are left out: the compiler schedules them so that they do not meet.
        hbm_efficiency: sustained share of the documented HBM bandwidth.
        matmul_efficiency: the compiler's cycles of a matrix product over those that it takes.
        attention_efficiency: cycles of the table of attention over those that the kernel takes.
        core_link_bytes_per_s: the link between two devices on one chip, one direction; 0 if there is none.
        dcn_bytes_per_s: what one device sends to other slices.
        dcn_launch_s: floor of a transfer between slices.
        relative_error: spread of predictions against measurements, once there are any (0.1 until then).
    """

    generation: str
    link_bytes_per_s: float
    link_efficiency: float = 0.96
    hop_s: float = 1e-6
    launch_s: float = 4e-6
    launches: tuple[tuple[str, float], ...] = ()
    shared_link_efficiency: float = 1.0
    hbm_efficiency: float = 0.9
    matmul_efficiency: float = 1.0
    attention_efficiency: float = 1.0
    core_link_bytes_per_s: float = 0.0
    dcn_bytes_per_s: float = 6.4e9
    dcn_launch_s: float = 5e-4
    relative_error: float = 0.1

    def __post_init__(self) -> None:
        shares = (self.link_efficiency, self.shared_link_efficiency, self.hbm_efficiency)
        cycles = (self.matmul_efficiency, self.attention_efficiency)
        if not (self.link_bytes_per_s > 0 and all(0 < share <= 1 for share in shares) and min(cycles) > 0):
            raise InvalidValue(
                f"calibration of {self.generation}: link rate {self.link_bytes_per_s}, efficiencies of links and HBM "
                f"{shares} and of cycles {cycles} must be above 0, those of links and HBM at most 1"
            )

    @property
    def sustained_link_bytes_per_s(self) -> float:
        """What a link carries in one direction at large messages."""
        return self.link_bytes_per_s * self.link_efficiency

    def launch_floor_s(self, kind: CollectiveKind) -> float:
        """Returns the floor of one collective of a kind."""
        return dict(self.launches).get(kind.value, self.launch_s)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {**asdict(self), "launches": dict(self.launches)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Calibration:
        """Reads what `to_json` wrote."""
        return cls(**{**document, "launches": tuple(sorted(document.get("launches", {}).items()))})

    @property
    def digest(self) -> str:
        """SHA-256 over the constants and the revision of the formulas: what a stored prediction depends on."""
        return digest({"model": MODEL_REVISION, **self.to_json()})


# Link rates: usable one-way rate of the JAX scaling book ("How to think about TPUs"). Efficiency: published permutes of
# 64 MiB reach 86.3e9 and 86.8e9 of 9.0e10 on v5p and v6e (marin issue 6736), an all-gather 0.95 of 4.5e10 on v5e
# (scaling-book PR 82). Hop: 1 us, scaling book ("Sharded matrices"). Floor: the same permutes at 16 KiB take 5.0 and
# 5.75 us over one hop; nothing is published for other kinds, which get the same floor. v7x all-reduce: 124 us at
# 2 MiB over 32 devices with SparseCore offload (accelerator-microbenchmarks issue 71). Core link: six times one ICI
# axis (MaxText's v7x guide). HBM: the compiler divides by 0.9 of the documented bandwidth on v5e (libtpu 0.0.50.1).
# DCN: the compiler's own cost model, 6.4e9 bytes/s for a device and at least 500 us.
CALIBRATIONS: dict[str, Calibration] = {
    record.generation: record
    for record in (
        Calibration(generation="v4", link_bytes_per_s=4.5e10),
        Calibration(generation="v5e", link_bytes_per_s=4.5e10),
        Calibration(generation="v5p", link_bytes_per_s=9.0e10),
        Calibration(generation="v6e", link_bytes_per_s=9.0e10),
        Calibration(
            generation="v7x",
            link_bytes_per_s=9.0e10,
            launches=(("all-reduce", 8.5e-5),),
            core_link_bytes_per_s=6e11,
        ),
    )
}

# Devices of one host, which exchange through its memory: nominal, as the figures of the CPU are. A factor of two either
# way is usual, hence the error.
CPU_CALIBRATION = Calibration(
    generation="cpu", link_bytes_per_s=4e9, launch_s=1e-4, hop_s=0.0, relative_error=1.0, hbm_efficiency=1.0
)


def calibration(generation: str) -> Calibration:
    """Returns the shipped record of a generation, ``cpu`` included. Raises UnknownName if there is none."""
    if generation == CPU_CALIBRATION.generation:
        return CPU_CALIBRATION
    try:
        return CALIBRATIONS[generation]
    except KeyError:
        legal = tuple(CALIBRATIONS)
        raise UnknownName(
            f"no calibration for {generation!r}; there is one for {', '.join(legal)}", nearest=legal
        ) from None
