"""Shapes of slices: which the compiler takes, which the cloud sells, and which of their axes wrap.

Sources: Google Cloud's TPU pages (supported shapes), the JAX scaling book ("How to think about TPUs", wraparound),
MaxText's ``accelerator_to_spec_map.py`` (the shape behind each accelerator name, and ``wrap``), and the compiler for
what it takes. Where the cloud may provision a twisted torus, the plain one is the default.
"""

from __future__ import annotations

import math
from functools import cache

from tuner.errors import InvalidValue
from tuner.slices.generations import Generation, generation
from tuner.slices.slice import Slice, can_twist

Shape = tuple[int, ...]

_LITE = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_BELOW_A_CUBE = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_CUBE = 4  # chips along each axis of the block that optical switches join
_FULL_LITE_AXIS = 16


@cache
def standard_shapes(generation_name: str) -> tuple[Shape, ...]:
    """Returns the shapes that the cloud sells, by number of chips and then most cubic first.

    v5e and v6e: a list. v4, v5p and v7x: a list below one cube of 4x4x4, and above it every A x B x C with
    A <= B <= C, multiples of 4, up to the size of a pod. Raises UnknownName for an unknown generation.
    """
    entry = generation(generation_name)
    if entry.dimensions == 2:
        return _LITE
    single = ((1, 1, 1),) if entry.devices_per_chip == 2 else ()
    return (*single, *_BELOW_A_CUBE, *sorted(_cubes(entry.pod_chips), key=lambda shape: (math.prod(shape), sum(shape))))


def _cubes(most_chips: int) -> list[Shape]:
    out: list[Shape] = []
    most = most_chips // _CUBE**3
    for a in range(1, most + 1):
        for b in range(a, most // a + 1):
            out += [(_CUBE * a, _CUBE * b, _CUBE * c) for c in range(b, most // (a * b) + 1)]
    return out


def is_standard(slice_: Slice) -> bool:
    """Returns whether the cloud sells the slice in this very orientation."""
    return slice_.shape in standard_shapes(slice_.generation_name)


def refusal(entry: Generation, shape: Shape) -> str | None:
    """Returns why the compiler does not take a shape, or None if it does.

    It takes every shape that whole hosts fill; an axis of one chip counts as filled.
    """
    if len(shape) != entry.dimensions:
        return f"{entry.name} has {entry.dimensions}-D grids"
    for axis, size, bound in zip("xyz", shape, entry.host_bounds, strict=False):
        if size < 1 or (size > 1 and size % bound):
            return f"{size} chips along {axis} do not divide into hosts of {'x'.join(map(str, entry.host_bounds))}"
    return None


def default_wrap(entry: Generation, shape: Shape) -> tuple[bool, ...]:
    """Returns which axes of a shape close into rings.

    v5e and v6e: an axis of 16, which spans the whole pod. v4, v5p and v7x: all axes if all are multiples of 4, because
    only whole cubes are joined by optical switches. The compiler's own default is none, so this must be passed to it.
    """
    if entry.dimensions == 2:
        return tuple(size == _FULL_LITE_AXIS for size in shape)
    return (all(size % _CUBE == 0 for size in shape),) * len(shape)


def make_slice(
    generation_name: str, shape: Shape, wrap: tuple[bool, ...] | None = None, *, twisted: bool = False
) -> Slice:
    """Builds a slice that the compiler takes; `wrap` None is `default_wrap`.

    Raises UnknownName for an unknown generation and InvalidValue, with the standard shapes, for a shape that the
    compiler refuses, or that has no twisted torus if `twisted`.
    """
    entry = generation(generation_name)
    reason = refusal(entry, shape)
    if reason is not None:
        raise InvalidValue(
            f"no slice {entry.name}-{'x'.join(map(str, shape))}: {reason}; standard shapes are {list_shapes(entry)}"
        )
    wrap = default_wrap(entry, shape) if wrap is None else wrap
    return Slice(generation_name=entry.name, shape=shape, wrap=wrap, twisted=twisted)


def list_shapes(entry: Generation) -> str:
    """Returns the standard shapes in words, without spelling hundreds of large ones out."""
    names = ["x".join(map(str, shape)) for shape in standard_shapes(entry.name)]
    if entry.dimensions == 2:
        return ", ".join(names)
    first = names[: names.index("4x4x4") + 1]
    return f"{', '.join(first)} and every AxBxC with A <= B <= C, multiples of 4, up to {entry.pod_chips} chips"


def note(slice_: Slice) -> str:
    """Returns what people should know about a slice's shape, or an empty text if it is an ordinary one."""
    entry, shape = slice_.generation, slice_.shape
    if not entry.has_links:
        return "CPU devices of this host; their predictions are rough estimates, and their times say nothing of a TPU"
    sold = standard_shapes(entry.name)
    notes = []
    if shape not in sold:
        turned = next((other for other in sold if sorted(other) == sorted(shape)), None)
        if turned is not None:
            notes.append(f"sold as {entry.name}-{'x'.join(map(str, turned))}, of which {slice_.name} is a turned view")
        else:
            notes.append(
                f"the compiler takes {slice_.name}, but the cloud does not sell it; sold: {list_shapes(entry)}"
            )
    if slice_.wrap != default_wrap(entry, shape):
        notes.append(f"wraparound is set to {slice_.wrap}; the cloud's is {default_wrap(entry, shape)}")
    if slice_.twisted:
        notes.append("a twisted torus; live devices do not say whether they are one")
    elif can_twist(entry.name, shape):
        notes.append(f"the cloud may provision a twisted torus, which is {slice_.name}_twisted; this is the plain one")
    return "; ".join(notes)
