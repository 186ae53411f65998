"""Names of slices as people type them: grids (``v5e-4x4``) and accelerator names (``v5litepod-16``, ``v4-8``)."""

from __future__ import annotations

import difflib
import math
import re
from functools import cache

from tuner.errors import InvalidValue, UnknownName
from tuner.slices.generations import CPU, GENERATIONS, Generation
from tuner.slices.shapes import Shape, list_shapes, make_slice, standard_shapes
from tuner.slices.slice import Slice

_NAME = re.compile(r"(?P<generation>[a-z0-9]+?)[-:](?P<size>\d+(?:x\d+)*)(?:_(?P<twist>un|)twisted)?")
_SUGGESTED_CHIPS = 512


def parse_slice(text: str, *, wrap: tuple[bool, ...] | None = None) -> Slice:
    """Reads a slice's name, in any case.

    A grid is taken as it is written: ``v5e-4x2`` is not ``v5e-2x4``. A number is what the accelerator names of the
    generation count: chips on v5e and v6e, TensorCores on v4, v5p and v7x, where ``v4-8`` is 4 chips; it stands for the
    most cubic standard shape of that size, which is the one behind the name in Google Cloud's and MaxText's tables.
    ``cpu-8`` is eight CPU devices of JAX, for measuring without a TPU.
    ``v5p-4x4x8_twisted`` is the twisted torus; the plain one is ``v5p-4x4x8`` or ``v5p-4x4x8_untwisted``.

    Args:
        text: for example ``v5e-4x4``, ``v5litepod-16``, ``tpu7x-8`` or JAX's ``v5:2x2x1``.
        wrap: whether each axis closes into a ring, where the default is wrong.

    Raises:
        UnknownName: the generation is unknown, the compiler refuses the shape, or no shape has that number of chips;
            the text lists what would be legal and `nearest` the closest names.
        InvalidValue: `wrap` does not match the grid.
    """
    name = text.strip().lower()
    match = _NAME.fullmatch(name)
    if match is not None and match["generation"] == CPU.name:
        return _cpu_devices(text, match["size"])
    if match is None:
        raise UnknownName(
            f"{text!r} is not the name of a slice; names look like v5e-4x4, v5p-2x2x1, v5litepod-16 or v4-8",
            nearest=_nearest(name),
        )
    entry = _generations().get(match["generation"])
    if entry is None:
        raise UnknownName(
            f"no TPU generation {match['generation']!r} in {text!r}; legal: {', '.join(GENERATIONS)}",
            nearest=_nearest(name),
        )
    sizes = tuple(map(int, match["size"].split("x")))
    shape = sizes if len(sizes) > 1 else _shape_of_count(text, entry, sizes[0])
    try:
        slice_ = make_slice(entry.name, shape, twisted=match["twist"] == "")
    except InvalidValue as error:
        raise UnknownName(str(error), nearest=_nearest(f"{entry.name}-{'x'.join(map(str, shape))}")) from None
    return slice_ if wrap is None else make_slice(entry.name, shape, wrap, twisted=slice_.twisted)


def accelerator_name(slice_: Slice) -> str:
    """Returns the generation with the number that accelerator names count, for example ``v4-8`` for v4-2x2x1."""
    entry = slice_.generation
    return f"{entry.name}-{slice_.num_chips * entry.counted_per_chip}"


def _cpu_devices(text: str, size: str) -> Slice:
    if not size.isdigit() or not 1 <= int(size) <= CPU.pod_chips:
        raise UnknownName(
            f"no slice {text!r}; CPU devices are counted, cpu-1 to cpu-{CPU.pod_chips}", nearest=("cpu-8",)
        )
    return Slice(generation_name=CPU.name, shape=(int(size), 1), wrap=(False, False))


def _shape_of_count(text: str, entry: Generation, count: int) -> Shape:
    chips, rest = divmod(count, entry.counted_per_chip)
    shapes = standard_shapes(entry.name)
    if rest == 0:
        for shape in shapes:
            if math.prod(shape) == chips:
                return shape
    counts = sorted({math.prod(shape) * entry.counted_per_chip for shape in shapes})
    nearest = sorted(counts, key=lambda other: abs(other - count))[:3]
    what = "chips" if entry.counted_per_chip == 1 else f"TensorCores ({entry.counted_per_chip} on each chip)"
    raise UnknownName(
        f"no standard slice {text!r}: the number counts {what} and the nearest are "
        f"{', '.join(map(str, sorted(nearest)))}; standard shapes are {list_shapes(entry)}",
        nearest=tuple(f"{entry.name}-{other}" for other in nearest),
    )


@cache
def _generations() -> dict[str, Generation]:
    return {name: entry for entry in GENERATIONS.values() for name in (entry.name, *entry.aliases)}


@cache
def _suggestions() -> tuple[str, ...]:
    out = []
    for entry in GENERATIONS.values():
        shapes = [shape for shape in standard_shapes(entry.name) if math.prod(shape) <= _SUGGESTED_CHIPS]
        out += [f"{entry.name}-{'x'.join(map(str, shape))}" for shape in shapes]
        counts = sorted({math.prod(shape) * entry.counted_per_chip for shape in shapes})
        out += [f"{name}-{count}" for name in (entry.name, *entry.aliases) for count in counts]
    return tuple(out)


def _nearest(name: str) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, _suggestions(), n=3, cutoff=0.5))
