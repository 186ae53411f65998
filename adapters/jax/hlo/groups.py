"""Replica groups in the three forms that one compiled module may mix.

``{{0,1},{2,3}}`` lists them (``{}`` is one group of all); ``[2,8]<=[4,4]T(1,0)`` counts devices in a grid, transposes
it and cuts it into rows; ``mesh['a'=2,'b'=4] {'b'}`` names axes of a mesh, whose order is the order inside of a
group, with an optional ``device_ids=(...)`` before the axes and sub-axes written ``'b':(2)2``: the part of size 2 of
axis ``b`` that lies below a part of size 2. Semantics as in openxla's ``replica_group.cc``.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adapters.jax.hlo.text import balanced_end
from tuner.errors import InvalidValue

Groups = tuple[tuple[int, ...], ...]

_INNER = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"@?mesh\[([^\]]*)\]")
_MESH_AXIS = re.compile(r"'([^']*)'=(\d+)|([\w./:\-]+)=(\d+)")
_MESH_IDS = re.compile(r",\s*device_ids=\(")
_AXIS = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?|([\w./\-]+)(?::\((\d+)\)(\d+))?")


def parse_groups(text: str, devices: int) -> Groups:
    """Reads the value of ``replica_groups=`` at the start of `text`. Raises InvalidValue on an unknown form."""
    text = text.lstrip()
    if text.startswith("{"):
        return _listed(text[: balanced_end(text, 0)]) or (tuple(range(devices)),)
    if (iota := _IOTA.match(text)) is not None:
        return _rows(_iota(iota[2], iota[3]).reshape(_numbers(iota[1])))
    if (mesh := _MESH.match(text)) is not None:
        return _mesh(mesh, text)
    raise InvalidValue(f"unknown form of replica groups: {text[:80]!r}")


def parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Reads the value of ``source_target_pairs=`` at the start of `text`."""
    text = text.lstrip()
    return tuple((source, target) for source, target in _listed(text[: balanced_end(text, 0)]))


def _listed(text: str) -> Groups:
    return tuple(group for group in (_numbers(inner) for inner in _INNER.findall(text[1:-1])) if group)


def _iota(shape: str, transpose: str | None) -> NDArray[np.int64]:
    grid = np.arange(math.prod(_numbers(shape)), dtype=np.int64).reshape(_numbers(shape))
    return grid.transpose(_numbers(transpose)) if transpose else grid


def _mesh(mesh: re.Match[str], text: str) -> Groups:
    axes = [(quoted or bare, int(size or bare_size)) for quoted, size, bare, bare_size in _MESH_AXIS.findall(mesh[1])]
    position = mesh.end()
    ids: NDArray[np.int64] = np.arange(math.prod(size for _, size in axes), dtype=np.int64)
    if (listed := _MESH_IDS.match(text, position)) is not None:
        end = balanced_end(text, listed.end() - 1)
        ids = _device_ids(text[listed.end() : end - 1])
        position = end
    opening = text.index("{", position)
    named = _AXIS.findall(text[opening + 1 : balanced_end(text, opening) - 1])
    parts = [(quoted or bare, int(a or c or 1), int(b or d or 0)) for quoted, a, b, bare, c, d in named]
    return _along(axes, parts, ids)


def _device_ids(text: str) -> NDArray[np.int64]:
    if (iota := _IOTA.match(text.strip())) is not None:
        return _iota(iota[2], iota[3]).ravel()
    if (bare := re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?$", text.strip())) is not None and bare[2]:
        return _iota(bare[1], bare[2]).ravel()
    return np.array(_numbers(re.sub(r"[^\d,]", "", text)), dtype=np.int64)


def _along(
    axes: list[tuple[str, int]],
    parts: list[tuple[str, int, int]],
    ids: NDArray[np.int64],
) -> Groups:
    """Groups along parts (axis, size of what lies above it, own size or 0 for the whole axis)."""
    dimensions: list[int] = []
    where: dict[tuple[str, int], list[int]] = {}
    for name, size in axes:
        cuts = {1, size}
        for axis, above, own in parts:
            if axis == name and own:
                cuts |= {above, above * own}
        borders = sorted(cuts)
        for axis, above, own in parts:
            if axis == name:
                end = above * own if own else size
                inside = [index for index, low in enumerate(borders[:-1]) if above <= low < end]
                where[axis, above] = [len(dimensions) + index for index in inside]
        dimensions += [high // low for low, high in pairwise(borders)]
    chosen = [dimension for axis, above, _ in parts for dimension in where[axis, above]]
    others = [dimension for dimension in range(len(dimensions)) if dimension not in chosen]
    size = math.prod(dimensions[dimension] for dimension in chosen)
    return _rows(ids.reshape(dimensions).transpose(others + chosen).reshape(-1, size))


def _rows(grid: NDArray[np.int64]) -> Groups:
    return tuple(tuple(int(member) for member in row) for row in grid)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())
