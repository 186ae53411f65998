"""Compiled texts of our own programs, made by ``tests/assets/hlo/make.py`` with each version of jax."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from adapters.jax.hlo.read import read_program
from tuner.program.program import Collective, Compute, ComputeKind, Loop, Node, Program

ASSETS = Path(__file__).parents[3] / "assets" / "hlo"
VERSIONS = tuple(sorted(folder.name for folder in ASSETS.iterdir() if (folder / "facts.json").exists()))
DEVICES = {
    "attention_stack": 8,
    "collective_matmul": 8,
    "gathered_layers": 8,
    "layers_1": 4,
    "layers_2_scan": 4,
    "layers_3_unrolled": 4,
    "layers_6_scan": 4,
    "multislice": 8,
    "nested_loops": 4,
    "overlapped_all_to_all": 8,
    "ring": 8,
    "routed_permute": 64,
    "whole_slice_gather": 64,
    "windowed_layers": 8,
}


@cache
def text(version: str, name: str) -> str:
    return lzma.decompress((ASSETS / version / f"{name}.txt.xz").read_bytes()).decode()


@cache
def facts(version: str, name: str) -> dict[str, Any]:
    """What the compiler's own analyses say: memory, and operations with every loop body counted once."""
    found = json.loads((ASSETS / version / "facts.json").read_text())[name]
    assert isinstance(found, dict)
    return found


@cache
def program(version: str, name: str) -> Program:
    return read_program(text(version, name), DEVICES.get(name, 16), None)


def names(version: str) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (ASSETS / version).glob("*.txt.xz"))


def total(program: Program, measure: str, *kinds: ComputeKind) -> float:
    """Sum over the step of a figure of the operations of some kinds, loops included."""
    return sum(
        times * (getattr(node, measure) or 0)
        for node, times in program.walk()
        if isinstance(node, Compute) and (not kinds or node.kind in kinds)
    )


def collectives(program: Program) -> list[tuple[Collective, int]]:
    return [(node, times) for node, times in program.walk() if isinstance(node, Collective)]


def loops(nodes: tuple[Node, ...]) -> list[Loop]:
    found = [node for node in nodes if isinstance(node, Loop)]
    return found + [inner for loop in found for inner in loops(loop.body)]
