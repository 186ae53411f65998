"""Symmetries of a slice: the ways to turn, mirror and shift it onto itself."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.slices.links import chip_coords
from tuner.slices.slice import Slice
from tuner.slices.twist import chip_index, onto_grid


def symmetries(slice_: Slice, *, translations: bool = True) -> NDArray[np.int32]:
    """Returns the isometries of the grid as permutations of devices, without duplicates, the identity first.

    Row ``s`` moves device ``d`` to ``out[s, d]``, shape (symmetries, devices). They are a group: reflections of each
    axis, permutations of axes that agree in size and wraparound, shifts along axes that wrap, and exchanging both cores
    of every chip at once where there are two. An axis of two chips is the same whether it wraps or not.

    Left out are maps that are no isometry of the space: exchanging the cores of single chips, and the extra symmetries
    that a ring of four chips has as a graph.

    A twisted torus has all 48 turns of a cube and a shift onto every chip, although its axes differ in size.

    Args:
        slice_: the slice.
        translations: False leaves the shifts out (and the result is a group still): the full group of a torus of n
            chips holds up to 48 n permutations of n devices, 3 GB at 4096 chips.
    """
    return _twisted(slice_, translations) if slice_.twisted else _symmetries(slice_, translations)


@lru_cache(maxsize=8)
def _twisted(slice_: Slice, translations: bool) -> NDArray[np.int32]:
    coords = chip_coords(slice_)
    rows = []
    for signs in itertools.product((1, -1), repeat=3):
        for order in itertools.permutations(range(3)):
            turned = coords[:, order] * np.array(signs, np.int32)
            for shift in coords if translations else coords[:1]:
                rows.append(chip_index(slice_, onto_grid(slice_, turned + shift)).astype(np.int32))
    out = np.array(rows)
    out.flags.writeable = False
    return out


@lru_cache(maxsize=8)
def _symmetries(slice_: Slice, translations: bool) -> NDArray[np.int32]:
    shape, wrap, cores = slice_.shape, slice_.wrap, slice_.cores
    coords = chip_coords(slice_)
    strides = np.cumprod((1, *shape[:-1]), dtype=np.int64)
    kinds = [(size, wraps and size > 2) for size, wraps in zip(shape, wrap, strict=True)]
    maps_of_axis = [_axis_maps(size, wraps and translations) for size, wraps in kinds]
    rows = []
    for order in _axis_orders(kinds):
        for maps in itertools.product(*maps_of_axis):
            rows.append(sum(maps[axis][coords[:, order[axis]]] * strides[axis] for axis in range(len(shape))))
    chips = np.array(rows, np.int32)
    if cores == 1:
        out = chips
    else:
        core = np.arange(cores, dtype=np.int32)
        devices = (chips[:, None, :, None] * cores + np.stack([core, core[::-1]])[None, :, None, :]).astype(np.int32)
        out = devices.reshape(2 * len(chips), math.prod(shape) * cores)
    out.flags.writeable = False
    return out


def _axis_orders(kinds: list[tuple[int, bool]]) -> list[tuple[int, ...]]:
    """Returns the permutations of axes that keep size and wraparound; axes of one chip stay where they are."""
    axes = range(len(kinds))
    return [
        order
        for order in itertools.permutations(axes)
        if all(kinds[order[axis]] == kinds[axis] and (kinds[axis][0] > 1 or order[axis] == axis) for axis in axes)
    ]


def _axis_maps(size: int, shifts: bool) -> list[NDArray[np.int64]]:
    """Returns the maps of one axis onto itself, each once: mirrored or not, and shifted if `shifts`."""
    positions = np.arange(size, dtype=np.int64)
    out = [(positions + shift) % size for shift in (range(size) if shifts else (0,))]
    return out if size == 1 else out + [mapped[::-1].copy() for mapped in out]
