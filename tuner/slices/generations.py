"""TPU generations: hardware figures, each with its source.

Peaks and capacities: Google Cloud's TPU pages and ``jax/_src/tpu_info.py``. Clocks: the compiler's own
(``cycles_per_microsecond`` of its schedule dumps), which agree with peak / (matrix units x cells x 2) on v4, v5e and v5p.
What a network or a memory really sustains is calibration, not hardware, and lives in `tuner.calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import UnknownName

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of TPU.

    Attributes:
        name: the short name, for example ``v5e``.
        topology_prefix: what ``jax.experimental.topologies`` calls it.
        chip_config: its ``chip_config_name``.
        device_kinds: what ``jax.Device.device_kind`` may say.
        dimensions: of the grid of chips, 2 or 3.
        devices_per_chip: JAX devices on a chip (2 on v7x; v4 and v5p fuse two cores into one device).
        peak_flops: bf16 operations per second of one device.
        hbm_bytes: capacity of one device that the compiler lets a program use.
        hbm_bytes_per_s: bandwidth of one device, as documented.
        clock_hz: of the cores.
        vmem_bytes: vector memory of one core.
        scoped_vmem_bytes: what one kernel may use of it by default.
    """

    name: str
    topology_prefix: str
    chip_config: str
    device_kinds: tuple[str, ...]
    dimensions: int
    devices_per_chip: int
    peak_flops: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    clock_hz: float
    vmem_bytes: int
    scoped_vmem_bytes: int = 16 << 20


GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation(
            name="v4",
            topology_prefix="v4",
            chip_config="megacore",
            device_kinds=("TPU v4",),
            dimensions=3,
            devices_per_chip=1,
            peak_flops=2.75e14,
            hbm_bytes=32 * GIB,
            hbm_bytes_per_s=1.2e12,
            clock_hz=1.05e9,
            vmem_bytes=16 << 20,
        ),
        Generation(
            name="v5e",
            topology_prefix="v5e",
            chip_config="default",
            device_kinds=("TPU v5 lite", "TPU v5e"),
            dimensions=2,
            devices_per_chip=1,
            peak_flops=1.97e14,
            hbm_bytes=int(15.75 * GIB),  # "exceeds available HBM (15.75G)", the compiler's own message
            hbm_bytes_per_s=8.19e11,
            clock_hz=1.5e9,
            vmem_bytes=128 << 20,
        ),
        Generation(
            name="v5p",
            topology_prefix="v5",
            chip_config="megacore",
            device_kinds=("TPU v5", "TPU v5p"),
            dimensions=3,
            devices_per_chip=1,
            peak_flops=4.59e14,
            hbm_bytes=95 * GIB,
            hbm_bytes_per_s=2.765e12,
            clock_hz=1.75e9,
            vmem_bytes=64 << 20,
        ),
        Generation(
            name="v6e",
            topology_prefix="v6e",
            chip_config="default",
            device_kinds=("TPU v6 lite", "TPU v6e"),
            dimensions=2,
            devices_per_chip=1,
            peak_flops=9.18e14,
            hbm_bytes=int(31.25 * GIB),
            hbm_bytes_per_s=1.638e12,
            clock_hz=1.75e9,
            vmem_bytes=128 << 20,
        ),
        Generation(
            name="v7x",
            topology_prefix="tpu7x",
            chip_config="default",
            device_kinds=("TPU7x", "TPU v7x"),
            dimensions=3,
            devices_per_chip=2,
            peak_flops=2.307e15 / 2,
            hbm_bytes=96 * GIB,
            hbm_bytes_per_s=7.38e12 / 2,
            clock_hz=1.9e9,
            vmem_bytes=64 << 20,
        ),
    )
}


def generation(name: str) -> Generation:
    """Returns the generation of that name. Raises UnknownName with the legal names."""
    try:
        return GENERATIONS[name]
    except KeyError:
        legal = tuple(GENERATIONS)
        raise UnknownName(f"no TPU generation {name!r}; legal: {', '.join(legal)}", nearest=legal) from None
