"""A slice: a TPU generation and a grid of chips."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import InvalidValue
from tuner.slices.generations import Generation, generation

Coords = tuple[int, ...]

_TWISTED = ("v4", "v5p")
_CUBE = 4  # chips along each axis of the block that optical switches join


def can_twist(generation_name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether there is a twisted torus of that shape."""
    if generation_name not in _TWISTED or len(shape) != 3:
        return False
    low, middle, high = sorted(shape)
    return low >= _CUBE and low % _CUBE == 0 and high == 2 * low and middle in (low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A grid of chips of one generation.

    Device ``i`` is core ``i % cores`` of chip ``i // cores``, and chips count with x fastest, then y, then z, which is
    the compiler's own physical id. These indices are ours: live devices are matched by coordinates, never by id.

    Attributes:
        generation_name: for example ``v5e``.
        shape: chips along x, y (and z on 3-D generations).
        wrap: whether each axis closes into a ring.
        twisted: whether links that wrap a short axis end half of every long axis further; see `tuner.slices.twist`.
    """

    generation_name: str
    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    twisted: bool = False

    def __post_init__(self) -> None:
        dimensions = self.generation.dimensions
        if len(self.shape) != dimensions or len(self.wrap) != dimensions:
            raise InvalidValue(
                f"{self.generation_name} has {dimensions}-D grids; shape {self.shape} and wrap {self.wrap} do not match"
            )
        if any(size < 1 for size in self.shape):
            raise InvalidValue(f"slice shape {self.shape} has an axis below 1")
        if self.twisted and not (can_twist(self.generation_name, self.shape) and all(self.wrap)):
            grid = "x".join(map(str, self.shape))
            raise InvalidValue(
                f"no twisted torus {self.generation_name}-{grid} with wraparound {self.wrap}; "
                "legal: v4 and v5p with k x k x 2k or k x 2k x 2k chips, k a multiple of 4, and all axes closed"
            )

    @property
    def generation(self) -> Generation:
        """Hardware figures."""
        return generation(self.generation_name)

    @property
    def name(self) -> str:
        """``v5e-4x4``, or ``v5p-4x4x8_twisted``, as the compiler's topologies are called; ``cpu-8`` for CPU devices."""
        if not self.generation.has_links:
            return f"{self.generation_name}-{self.num_chips}"
        return f"{self.generation_name}-{'x'.join(map(str, self.shape))}{'_twisted' if self.twisted else ''}"

    @property
    def cores(self) -> int:
        """Devices on each chip."""
        return self.generation.devices_per_chip

    @property
    def num_chips(self) -> int:
        """Chips in the slice."""
        return math.prod(self.shape)

    @property
    def num_devices(self) -> int:
        """JAX devices in the slice."""
        return self.num_chips * self.cores

    def coords(self, device: int) -> Coords:
        """Returns the chip coordinates of a device index. Raises InvalidValue if there is no such device."""
        if not 0 <= device < self.num_devices:
            raise InvalidValue(f"{self.name} has devices 0 to {self.num_devices - 1}, not {device}")
        chip, out = device // self.cores, []
        for size in self.shape:
            chip, position = divmod(chip, size)
            out.append(position)
        return tuple(out)

    def core(self, device: int) -> int:
        """Returns the core of a device index on its chip."""
        return device % self.cores

    def device(self, coords: Coords, core: int = 0) -> int:
        """Returns the device index at chip coordinates. Raises InvalidValue outside of the grid."""
        if len(coords) != len(self.shape) or any(not 0 <= c < n for c, n in zip(coords, self.shape, strict=True)):
            raise InvalidValue(f"{self.name} has no chip at {coords}; coordinates go below {self.shape}")
        if not 0 <= core < self.cores:
            raise InvalidValue(f"{self.name} has {self.cores} device(s) per chip, not core {core}")
        chip = 0
        for position, size in zip(reversed(coords), reversed(self.shape), strict=True):
            chip = chip * size + position
        return chip * self.cores + core
