"""Where the chips of a slice lie on paper: x to the right, y downwards, planes of a 3-D slice side by side."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.slices.slice import Coords, Slice

Point = tuple[float, float]

ROOMY_CHIPS = 64
"""Up to so many chips on paper, every chip and link has room for its figures."""

WIDEST = 920.0
"""Planes are set side by side up to this width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The places of chips.

    Attributes:
        slice_: the slice.
        planes: which values of z are drawn; ``(0,)`` on 2-D slices.
        cell: side of a chip.
        gap: between chips.
        top: of the first plane.
    """

    slice_: Slice
    planes: tuple[int, ...]
    cell: int
    gap: int
    top: float = 0.0

    @classmethod
    def of(cls, slice_: Slice, *, plane: int | None, most_chips: int, top: float = 0.0) -> Grid:
        """Returns a grid of all planes if they have at most `most_chips` chips, else of one plane.

        Args:
            slice_: the slice.
            plane: which one; None for all or, where they are too many, the first.
            most_chips: on paper at once.
            top: of the first plane.
        """
        depth = slice_.shape[2] if len(slice_.shape) == 3 else 1
        every = tuple(range(depth))
        if plane is not None:
            planes: tuple[int, ...] = (min(max(plane, 0), depth - 1),)
        else:
            planes = every if slice_.num_chips <= most_chips else every[:1]
        chips = slice_.num_chips // depth * len(planes)
        roomy = chips <= ROOMY_CHIPS
        cell = 44 if roomy else 26
        if slice_.cores == 2:
            cell = round(1.3 * cell)
        return cls(slice_=slice_, planes=planes, cell=cell, gap=40 if roomy else 17, top=top)

    @property
    def roomy(self) -> bool:
        """Whether there is room for the figures of every chip and link."""
        return self.gap > 20

    @property
    def round(self) -> float:
        """Radius of a chip's corners."""
        return 5.0 if self.roomy else 3.0

    @property
    def pitch(self) -> int:
        """From one chip to the next."""
        return self.cell + self.gap

    @property
    def margin(self) -> float:
        """Around a plane: room for the stubs of links that wrap around or lead to another plane, or only for arcs."""
        return round(self.gap * (0.8 if any(self.slice_.wrap) or len(self.slice_.shape) == 3 else 0.5))

    @property
    def plane_size(self) -> Point:
        """Width and height of one plane with its margins."""
        width, height = (self.slice_.shape[axis] * self.pitch - self.gap + 2 * self.margin for axis in (0, 1))
        return width, height + (self._heading if len(self.slice_.shape) == 3 else 0)

    @property
    def _heading(self) -> float:
        return 18.0

    @property
    def columns(self) -> int:
        """Planes side by side."""
        return max(1, min(len(self.planes), int(WIDEST // self.plane_size[0])))

    @property
    def size(self) -> Point:
        """Width and height of all planes."""
        rows = -(-len(self.planes) // self.columns)
        return self.columns * self.plane_size[0], rows * self.plane_size[1]

    def corner(self, z: int) -> Point:
        """Returns the upper left corner of a plane, margins included."""
        row, column = divmod(self.planes.index(z), self.columns)
        return column * self.plane_size[0], self.top + row * self.plane_size[1]

    def shows(self, chip: Coords) -> bool:
        """Returns whether a chip is on paper."""
        return (chip[2] if len(chip) == 3 else 0) in self.planes

    def middle(self, chip: Coords) -> Point:
        """Returns the middle of a chip."""
        left, top = self.corner(chip[2] if len(chip) == 3 else 0)
        top += self._heading if len(chip) == 3 else 0
        half = self.cell / 2
        return left + self.margin + chip[0] * self.pitch + half, top + self.margin + chip[1] * self.pitch + half
