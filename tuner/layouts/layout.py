"""Layouts and candidates: the logical half of what the search decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue
from tuner.placements.placement import Placement

Option = str | int
"""An option's value: Optuna and JSON keep strings and integers unchanged over a reload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the named mesh axes and the workload's options.

    Attributes:
        axes: (name, size) of every mesh axis, outermost first; the flattened index over them is the logical device id
            that a compiled program's replica groups name.
        options: (name, value) of every option of the workload, sorted by name.
    """

    axes: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if len(set(names)) != len(names):
            raise InvalidValue(f"mesh axes {names} repeat a name; each name is legal once")
        for name, size in self.axes:
            if size < 1:
                raise InvalidValue(f"mesh axis {name!r} has size {size}; sizes are whole numbers from 1")
        object.__setattr__(self, "options", tuple(sorted(self.options)))

    @classmethod
    def of(cls, axes: Mapping[str, int], options: Mapping[str, Option] | None = None) -> Layout:
        """Builds a layout from mappings; the order of `axes` is the mesh order, outermost first."""
        return cls(axes=tuple(axes.items()), options=tuple((options or {}).items()))

    @property
    def devices(self) -> int:
        """Number of devices: the product of the axis sizes."""
        return math.prod(size for _, size in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis sizes, outermost first."""
        return tuple(size for _, size in self.axes)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Axis names, outermost first."""
        return tuple(name for name, _ in self.axes)

    def size(self, name: str) -> int:
        """Returns the size of a mesh axis; an axis that the layout does not have is of size 1."""
        return dict(self.axes).get(name, 1)

    def option(self, name: str, default: Option | None = None) -> Option:
        """Returns an option. Raises InvalidValue if it is absent and there is no default."""
        value = dict(self.options).get(name, default)
        if value is None:
            raise InvalidValue(f"layout {self} has no option {name!r}; it has {[key for key, _ in self.options]}")
        return value

    def replace_options(self, **changes: Option) -> Layout:
        """Returns the same axes with some options changed."""
        return Layout(axes=self.axes, options=tuple((dict(self.options) | changes).items()))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document; axis order is kept."""
        return {"axes": [[name, size] for name, size in self.axes], "options": dict(self.options)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Layout:
        """Reads what `to_json` wrote."""
        return cls(
            axes=tuple((str(name), int(size)) for name, size in document["axes"]),
            options=tuple(document.get("options", {}).items()),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return digest(self.to_json())

    def __str__(self) -> str:
        axes = " ".join(f"{name}={size}" for name, size in self.axes if size > 1) or "one device"
        options = " ".join(f"{name}={value}" for name, value in self.options)
        return f"{axes} [{options}]" if options else axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout with the compiler options that the search chose: compiled once, then placed many times.

    Attributes:
        placement: what the mesh looks like to the compiler where the program depends on it (v5e slices of more than 16
            chips); None elsewhere, where one program serves every placement.
    """

    layout: Layout
    compiler_options: tuple[tuple[str, str], ...] = ()
    placement: Placement | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "compiler_options", tuple(sorted(self.compiler_options)))

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document; a placement is its device indices and its description."""
        placed = self.placement
        return self._identity() | ({} if placed is None else {"placement_description": placed.description})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Candidate:
        """Reads what `to_json` wrote."""
        devices, description = document.get("placement"), str(document.get("placement_description", ""))
        return cls(
            layout=Layout.from_json(document["layout"]),
            compiler_options=tuple((str(k), str(v)) for k, v in document.get("compiler_options", {}).items()),
            placement=None if devices is None else Placement(devices=tuple(devices), description=description),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, without the description of a placement."""
        return digest(self._identity())

    def _identity(self) -> dict[str, Any]:
        placed = {} if self.placement is None else {"placement": list(self.placement.devices)}
        return {"layout": self.layout.to_json(), "compiler_options": dict(self.compiler_options), **placed}
