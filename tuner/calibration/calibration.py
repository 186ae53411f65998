"""Constants of the compute and network models, one record for each generation, each with its source.

Nothing here was measured by meshwright: the figures come from published measurements and from the compiler's own cost
model until `calibrate` replaces them on a device.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants of one generation.

    Attributes:
        link_bytes_per_s: what one ICI link carries in one direction at large messages.
        hop_s: latency of one hop.
        launch_s: floor of one collective, whatever its size.
        hbm_efficiency: sustained share of the documented HBM bandwidth.
        core_link_bytes_per_s: the link between two devices on one chip; 0 if there is none.
        relative_error: spread of predictions against measurements, once there are any (0.1 until then).
    """

    generation: str
    link_bytes_per_s: float
    hop_s: float = 1e-6
    launch_s: float = 5e-6
    hbm_efficiency: float = 0.9
    core_link_bytes_per_s: float = 0.0
    relative_error: float = 0.1


# Link rates: usable rate of the JAX scaling book (4.5e10, 9.0e10) times what published large-message slopes reach of it
# (86.3e9 and 86.8e9 of 9.0e10 for permutes on v5p and v6e: 0.96). Launch floor: published 16 KiB permutes take 5.0 and
# 5.75 us. HBM: the compiler divides by 0.9 of the documented bandwidth on v5e.
CALIBRATIONS: dict[str, Calibration] = {
    record.generation: record
    for record in (
        Calibration(generation="v4", link_bytes_per_s=0.96 * 4.5e10),
        Calibration(generation="v5e", link_bytes_per_s=0.96 * 4.5e10),
        Calibration(generation="v5p", link_bytes_per_s=0.96 * 9.0e10),
        Calibration(generation="v6e", link_bytes_per_s=0.96 * 9.0e10),
        Calibration(generation="v7x", link_bytes_per_s=0.96 * 9.0e10, core_link_bytes_per_s=6e11),
    )
}


def calibration(generation: str) -> Calibration:
    """Returns the shipped record of a generation. Raises UnknownName if there is none."""
    try:
        return CALIBRATIONS[generation]
    except KeyError:
        raise UnknownName(f"no calibration for {generation!r}; there is one for {', '.join(CALIBRATIONS)}") from None
