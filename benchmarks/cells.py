"""Cells of the grid in ``space.toml``: a model, a shape and a slice, and what is compiled of them for reference."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.ports import WorkloadSpec
from tuner.units import parse_seconds

SPACE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "space.toml").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell; `budget_s` is what a search from cold may take."""

    model: str
    size: str
    frames: int
    slice_name: str
    budget_s: float

    @property
    def name(self) -> str:
        return f"{self.model}@{self.size}x{self.frames} {self.slice_name}"

    @property
    def spec(self) -> WorkloadSpec:
        return WorkloadSpec(model=self.model, parameters={"shape": f"{self.size}x{self.frames}"})

    @property
    def in_full(self) -> bool:
        full = SPACE["reference"]["full"]
        return self.size in full["sizes"] and self.frames in full["frames"]


def cells() -> Iterator[Cell]:
    """Yields every cell: small slices first, cells that the reference has in full before others."""
    grid = SPACE["grid"]
    every = [
        Cell(model=model, size=size, frames=frames, slice_name=slice_name, budget_s=parse_seconds(budget))
        for slice_name, budget in grid["slices"].items()
        for model in grid["models"]
        for size in grid["sizes"]
        for frames in grid["frames"]
    ]
    yield from sorted(every, key=lambda cell: not cell.in_full)
