"""A placement: which device of the slice sits at each mesh position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import InvalidValue
from tuner.slices.slice import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A bijection from flattened mesh positions to device indices of a slice.

    Attributes:
        devices: `devices[k]` is the slice's device index at mesh position ``k`` (row-major over the layout's axes), so
            a compiled program's logical id ``k`` runs there.
        description: one line for people ("ulysses: 2x2 blocks; cfg: the two halves").
    """

    devices: tuple[int, ...]
    description: str = ""

    def __post_init__(self) -> None:
        if sorted(self.devices) != list(range(len(self.devices))):
            raise InvalidValue(f"placement {self.devices} is not a bijection onto 0 to {len(self.devices) - 1}")

    def to_json(self, slice_: Slice) -> dict[str, Any]:
        """Returns a JSON document with (slice index, chip coordinates, core) of each position, never device ids."""
        return {
            "description": self.description,
            "positions": [[0, list(slice_.coords(device)), slice_.core(device)] for device in self.devices],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], slice_: Slice) -> Placement:
        """Reads what `to_json` wrote. Raises InvalidValue if it is not a bijection onto this slice."""
        placement = cls(
            devices=tuple(slice_.device(tuple(coords), core) for _, coords, core in document["positions"]),
            description=str(document.get("description", "")),
        )
        if len(placement.devices) != slice_.num_devices:
            raise InvalidValue(
                f"placement covers {len(placement.devices)} devices, {slice_.name} has {slice_.num_devices}"
            )
        return placement
