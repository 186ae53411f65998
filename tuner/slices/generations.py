"""TPU generations: hardware figures, each with its source.

Sources, in this order:

- ``jax/_src/tpu_info.py`` of jax 0.12.0.1 (``jax/_src/pallas/mosaic/tpu_info.py`` of 0.10.2; equal figures): peaks, HBM
  bandwidths, VMEM. They are Google Cloud's documented figures, rounded; the one exception is noted at v5p.
- The compiler itself, libtpu 0.0.42.1 and 0.0.50.1, asked ahead of time: `hbm_bytes` is the capacity less what it
  reserves, found by bisecting the size of an argument until ``CompileTimeHbmOom``. The two versions reserve different
  amounts on v5p, v6e and v7x; the larger is taken off, so that what fits here fits under both. `scoped_vmem_bytes` is
  the limit that ``CompileTimeScopedVmemOom`` names for a kernel with pipelined blocks; equal in both versions.
- Clocks: the compiler's ``cycles_per_microsecond`` in its schedule dumps, which agrees with
  peak / (matrix units x cells x 2) on v4, v5e and v5p.
- Host bounds, pods and the meaning of accelerator names: Google Cloud's TPU pages and MaxText's
  ``accelerator_to_spec_map.py``.

What a network or a memory really sustains is calibration, not hardware, and lives in `tuner.calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import UnknownName

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of TPU.

    Attributes:
        name: the short name, for example ``v5e``.
        aliases: other names that people type, in lower case, without the number of chips.
        topology_prefix: what ``jax.experimental.topologies`` calls it.
        chip_config: its ``chip_config_name``.
        device_kinds: what ``jax.Device.device_kind`` may say.
        dimensions: of the grid of chips, 2 or 3; CPU devices count as a single row.
        devices_per_chip: JAX devices on a chip (2 on v7x; v4 and v5p fuse two cores into one device).
        counted_per_chip: what the number of an accelerator name counts on each chip: 1 where it counts chips
            (``v6e-8``), 2 where it counts TensorCores (``v4-8`` is 4 chips).
        host_bounds: chips of one host along x, y, z.
        pod_chips: chips of the largest slice.
        peak_flops: bf16 operations per second of one device.
        hbm_bytes: capacity of one device that the compiler lets a program use.
        hbm_bytes_per_s: bandwidth of one device, as documented.
        clock_hz: of the cores.
        vmem_bytes: vector memory of one core.
        scoped_vmem_bytes: what one kernel may use of it by default.
    """

    name: str
    aliases: tuple[str, ...]
    topology_prefix: str
    chip_config: str
    device_kinds: tuple[str, ...]
    dimensions: int
    devices_per_chip: int
    counted_per_chip: int
    host_bounds: tuple[int, int, int] = (2, 2, 1)
    pod_chips: int
    peak_flops: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    clock_hz: float
    vmem_bytes: int
    scoped_vmem_bytes: int = 16 * MIB

    @property
    def has_links(self) -> bool:
        """False for CPU devices: threads of one host, which share its memory, so that no placement differs."""
        return self is not CPU


# JAX's virtual CPU devices share the cores and the memory of one host, so the figures are nominal: about a tenth of
# what one core of a server of 2020 to 2025 reaches in float32 with AVX2. They order candidates and bound nothing real.
CPU = Generation(
    name="cpu",
    aliases=(),
    topology_prefix="cpu",
    chip_config="",
    device_kinds=("cpu",),
    dimensions=2,
    devices_per_chip=1,
    counted_per_chip=1,
    host_bounds=(64, 1, 1),
    pod_chips=64,
    peak_flops=1e10,
    hbm_bytes=4 * GIB,
    hbm_bytes_per_s=4e9,
    clock_hz=1e9,
    vmem_bytes=MIB,
)
"""Not one of the TPU generations: slices of it are for measuring without a TPU, and never serve one."""

GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation(
            name="v4",
            aliases=(),
            topology_prefix="v4",
            chip_config="megacore",
            device_kinds=("TPU v4",),
            dimensions=3,
            devices_per_chip=1,
            counted_per_chip=2,
            pod_chips=4096,
            peak_flops=2.75e14,
            hbm_bytes=32 * GIB - 1283 * MIB,
            hbm_bytes_per_s=1.23e12,
            clock_hz=1.05e9,
            vmem_bytes=16 * MIB,
        ),
        Generation(
            name="v5e",
            aliases=("v5litepod", "v5lite"),
            topology_prefix="v5e",
            chip_config="default",
            device_kinds=("TPU v5 lite", "TPU v5e"),
            dimensions=2,
            devices_per_chip=1,
            counted_per_chip=1,
            pod_chips=256,
            peak_flops=1.97e14,
            hbm_bytes=16 * GIB - 258 * MIB,
            hbm_bytes_per_s=8.20e11,
            clock_hz=1.5e9,
            vmem_bytes=128 * MIB,
        ),
        Generation(
            name="v5p",
            aliases=("v5",),
            topology_prefix="v5",
            chip_config="megacore",
            device_kinds=("TPU v5", "TPU v5p"),
            dimensions=3,
            devices_per_chip=1,
            counted_per_chip=2,
            pod_chips=8960,
            peak_flops=4.59e14,
            hbm_bytes=96 * GIB - 279 * MIB,  # 263 MiB reserved by libtpu 0.0.42.1
            # Google Cloud's v5p page. tpu_info has 2.46e12, but a bound on the step time needs the higher figure.
            hbm_bytes_per_s=2.765e12,
            clock_hz=1.75e9,
            vmem_bytes=64 * MIB,
        ),
        Generation(
            name="v6e",
            aliases=("v6lite",),
            topology_prefix="v6e",
            chip_config="default",
            device_kinds=("TPU v6 lite", "TPU v6e"),
            dimensions=2,
            devices_per_chip=1,
            counted_per_chip=1,
            pod_chips=256,
            peak_flops=9.20e14,
            hbm_bytes=int(31.5 * GIB) - 264 * MIB,  # 260 MiB reserved by libtpu 0.0.42.1
            hbm_bytes_per_s=1.64e12,
            clock_hz=1.75e9,
            vmem_bytes=128 * MIB,
            scoped_vmem_bytes=32 * MIB,
        ),
        Generation(
            name="v7x",
            aliases=("tpu7x", "7x", "tpuv7x"),
            topology_prefix="tpu7x",
            chip_config="default",
            device_kinds=("TPU7x", "TPU v7x"),
            dimensions=3,
            devices_per_chip=2,
            counted_per_chip=2,  # MaxText and xpk: tpu7x-8 is one host, 2x2x1
            pod_chips=9216,
            peak_flops=2.31e15 / 2,
            hbm_bytes=95 * GIB - 268 * MIB,  # 260 MiB reserved by libtpu 0.0.42.1
            hbm_bytes_per_s=7.40e12 / 2,
            clock_hz=1.9e9,
            vmem_bytes=64 * MIB,
            scoped_vmem_bytes=32 * MIB,
        ),
    )
}


def generation(name: str) -> Generation:
    """Returns the generation of that name, ``cpu`` included. Raises UnknownName with the legal names."""
    if name == CPU.name:
        return CPU
    try:
        return GENERATIONS[name]
    except KeyError:
        legal = tuple(GENERATIONS)
        raise UnknownName(f"no TPU generation {name!r}; legal: {', '.join(legal)}", nearest=legal) from None


def generation_of_kind(device_kind: str) -> Generation:
    """Returns the generation that a ``jax.Device.device_kind`` names. Raises UnknownName with the known kinds.

    One chip has several names: "TPU v5 lite" and "TPU v5e" are v5e, "TPU v5" and "TPU v5p" are v5p.
    """
    for entry in GENERATIONS.values():
        if device_kind in entry.device_kinds:
            return entry
    known = tuple(kind for entry in GENERATIONS.values() for kind in entry.device_kinds)
    raise UnknownName(f"no TPU generation has device kind {device_kind!r}; known: {', '.join(known)}", nearest=known)
