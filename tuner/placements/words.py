"""How a mesh axis lies on the chips, in words."""

from __future__ import annotations

from collections.abc import Sequence

AXES = "xyz"
COUNTS = {2: "two", 3: "three", 4: "four", 8: "eight"}


def describe_axis(factors: Sequence[int], strides: Sequence[int], extents: Sequence[int], dimensions: int) -> str:
    """Returns for example ``2x2 blocks``, ``lines along x``, ``the two halves along y`` or ``every 2nd chip along x``.

    Args:
        factors: extent of the mesh axis on each physical axis, the cores of a chip last.
        strides: distance of neighbours on each physical axis.
        extents: size of each physical axis.
        dimensions: number of physical axes that are not cores.
    """
    cores = factors[dimensions] > 1
    used = [axis for axis in range(dimensions) if factors[axis] > 1]
    if all(factor == extent for factor, extent in zip(factors, extents, strict=True)):
        return "the whole slice"
    if not used:
        return "the two cores of a chip"
    with_cores = ", both cores" if cores else ""
    if len(used) > 1:
        shape = "x".join(str(factors[axis]) for axis in range(dimensions) if extents[axis] > 1)
        apart = "x".join(str(strides[axis]) for axis in range(dimensions) if extents[axis] > 1)
        if all(strides[axis] == 1 for axis in used):
            return f"{shape} blocks{with_cores}"
        return f"{shape} chips, {apart} apart{with_cores}"
    (axis,) = used
    count, stride, extent = factors[axis], strides[axis], extents[axis]
    name = AXES[axis]
    if stride == 1:
        return f"{'pairs' if count == 2 else f'lines of {count}'} along {name}{with_cores}"
    if count * stride == extent:
        parts = "halves" if count == 2 else "bands"
        return f"the {COUNTS.get(count, str(count))} {parts} along {name}{with_cores}"
    return f"{count} chips along {name}, {stride} apart{with_cores}"
