"""Twisted tori: tori whose short axes close with a shift along the long ones.

On k x k x 2k and k x 2k x 2k chips, a link that wraps a short axis ends half of every long axis further (Jouppi et al.,
"TPU v4", ISCA 2023; Camarero, Martinez and Beivide, "Lattice graphs for high-scale interconnection topologies"). Chips
are then the points of a cubic lattice modulo a sublattice that has all 48 symmetries of a cube: the face-centred one (k
times all points whose coordinates have an even sum) for k x k x 2k, the body-centred one (k times all points whose
coordinates are all even or all odd) for k x 2k x 2k. So every direction is like every other, and every line of links is
a ring of 2k chips.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.slices.slice import Slice


def onto_grid(slice_: Slice, places: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the chips that places are, where they lie outside of the grid along closed axes.

    Args:
        slice_: the slice; an axis that does not wrap is left as it is.
        places: coordinates [..., dimensions] of any size.

    Returns:
        Coordinates [..., dimensions].
    """
    shape = np.array(slice_.shape)
    out: NDArray[np.int32] = np.where(slice_.wrap, places % shape, places).astype(np.int32)
    if slice_.twisted:
        short = shape == shape.min()
        turns = (places[..., short] // shape.min()).sum(axis=-1, keepdims=True)
        out = np.where(short, out, (out + turns * shape.min()) % shape).astype(np.int32)
    return out


def chip_index(slice_: Slice, coords: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns the index of chips at coordinates [..., dimensions] inside of the grid, x fastest."""
    strides = np.cumprod((1, *slice_.shape[:-1]), dtype=np.int64)
    return np.asarray(coords @ strides, np.int64)


def rings_along(slice_: Slice, axis: int) -> NDArray[np.int64]:
    """Returns the rings that links along one axis of a twisted torus make, as chips [rings, length]."""
    length = max(slice_.shape)
    starts = [range(size) for size in slice_.shape]
    starts[axis] = range(1)
    if slice_.shape[axis] < length:  # such a ring crosses the grid twice: it starts in the lower half of a long axis
        through = slice_.shape.index(length)
        starts[through] = range(length // 2)
    places = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 1, len(slice_.shape))
    steps = np.zeros((length, len(slice_.shape)), np.int32)
    steps[:, axis] = np.arange(length)
    return chip_index(slice_, onto_grid(slice_, (places + steps).astype(np.int32)))
