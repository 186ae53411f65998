"""The space of layouts of a workload: what may vary, and the complete list of what is legal on so many devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout, Option
from tuner.rejections import Rejection

COMPILER_DEFAULT = "default"
"""Value of a compiler flag that is not passed to the compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A parallel dimension that a workload offers: a mesh axis and the sizes that it may ever take.

    Attributes:
        name: the mesh axis.
        sizes: legal sizes, ascending, starting with 1. Fixed for the workload, whatever the slice, so that the search's
            parameter domain never changes under a study.
        what: what it splits, for people ("guidance halves", "attention heads").
    """

    name: str
    sizes: tuple[int, ...]
    what: str = ""

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] != 1 or list(self.sizes) != sorted(set(self.sizes)):
            raise InvalidValue(
                f"dimension {self.name!r} has sizes {self.sizes}; legal: ascending from 1 without repeats"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An option of the workload or of the compiler and every value that it may ever take; the first is the default.

    Attributes:
        needs: mesh axes of which one must be split for the choice to matter; empty if it always may.
    """

    name: str
    values: tuple[Option, ...]
    what: str = ""
    needs: tuple[str, ...] = ()

    def matters(self, layout: Layout) -> bool:
        """Returns whether the choice can make a difference to a layout."""
        return not self.needs or any(layout.size(axis) > 1 for axis in self.needs)

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise InvalidValue(f"option {self.name!r} has values {self.values}; legal: at least one, without repeats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Everything that a workload lets the search vary.

    Attributes:
        dimensions: mesh axes, outermost first.
        options: choices that shape the program (attention kind, how weights are kept).
        tuned: choices tuned only on the best few layouts (kernel blocks); every layout starts at their default.
        compiler: compiler flags that are useful and safe, tuned likewise. `COMPILER_DEFAULT` leaves a flag to the
            compiler; the first value is what every layout starts with.
    """

    dimensions: tuple[Dimension, ...]
    options: tuple[Choice, ...] = ()
    tuned: tuple[Choice, ...] = ()
    compiler: tuple[Choice, ...] = ()

    def initial_flags(self) -> tuple[tuple[str, str], ...]:
        """Returns the compiler flags that every layout starts with."""
        return passed_flags({choice.name: choice.values[0] for choice in self.compiler})

    def defaults(self) -> dict[str, Option]:
        """Returns every option at its default, the tuned ones included."""
        return {choice.name: choice.values[0] for choice in (*self.options, *self.tuned)}


def passed_flags(values: Mapping[str, Option]) -> tuple[tuple[str, str], ...]:
    """Returns the flags that are passed to the compiler for these values."""
    return tuple((name, str(value)) for name, value in values.items() if value != COMPILER_DEFAULT)


Verdict = Callable[[Layout], Rejection | None]
"""Says why a layout is illegal for a workload, or None."""


def factorizations(devices: int, dimensions: tuple[Dimension, ...]) -> Iterator[tuple[int, ...]]:
    """Yields every tuple of legal sizes, one for each dimension, whose product is `devices`."""
    if not dimensions:
        if devices == 1:
            yield ()
        return
    head, *rest = dimensions
    for size in head.sizes:
        if devices % size == 0:
            for tail in factorizations(devices // size, tuple(rest)):
                yield (size, *tail)


def enumerate_layouts(space: Space, devices: int, verdict: Verdict) -> Iterator[Layout | Rejection]:
    """Yields every layout of `space` on `devices` devices, or the reason why it is refused, in a repeatable order."""
    names = tuple(dimension.name for dimension in space.dimensions)
    for sizes in factorizations(devices, space.dimensions):
        axes = dict(zip(names, sizes, strict=True))
        for options in _products(space.options):
            layout = Layout.of(axes, space.defaults() | dict(options))
            yield verdict(layout) or layout


def _products(choices: Iterable[Choice]) -> Iterator[tuple[tuple[str, Option], ...]]:
    first, *rest = tuple(choices) or (None,)
    if first is None:
        yield ()
        return
    for value in first.values:
        for tail in _products(rest):
            yield ((first.name, value), *tail)
