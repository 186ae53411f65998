"""The physical half of the space as Optuna parameters: which block of chips each mesh axis takes, and how it walks it.

A structured placement is a handful of questions, asked in turn. Each is a parameter whose domain depends on its name
only, is never a single value, and holds legal answers alone, whatever was answered before; so a name holds what its
answers depend on: the mesh axis and its size, and the room that the axes before it left.

    ``block ulysses=8 in 8x4``    ``2x4``                       chips along x, y (z, and cores of a chip)
    ``order y cfg+ulysses``       ``cfg inside ulysses``        who has neighbours, where axes share a physical axis
    ``walk ulysses=8 2x4``        ``rings``, ``rows``, ...      only where the order in a group matters to the program
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from tuner.layouts.layout import Layout
from tuner.network.fabric import Ints
from tuner.placements.families import Structure, Walk, block_rows, closes, device_strides, walks
from tuner.placements.words import AXES
from tuner.slices.slice import Slice

Factors = tuple[int, ...]

REVISION = 1
"""Raised when a name comes to mean other choices: a study never has two domains of one parameter."""

_WORDS = {"": "rows", "walked as rings": "rings", "walked along the first axis": "columns", "folded": "folded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A physical parameter.

    Attributes:
        name: of the parameter.
        choices: what it may be.
        means: for each choice the factors of mesh axis `axis` ("block"), the mesh axes on physical axis `place` from
            the inside out ("order"), or the walk of `axis` ("walk").
    """

    name: str
    choices: tuple[str, ...]
    means: tuple[Factors | Walk, ...] = field(compare=False)
    axis: int = field(default=-1, compare=False)
    place: int = field(default=-1, compare=False)


Answer = Callable[[Question], int]
"""Gives the index of a choice: a sampler, or a placement that is known."""


def structure(slice_: Slice, layout: Layout, ordered: Collection[str], answer: Answer) -> Structure:
    """Returns the structured placement that the answers to its questions make.

    Args:
        slice_: where it is.
        layout: whose mesh axes are placed; its sizes multiply to the number of devices.
        ordered: mesh axes along which the order inside a group matters to the program.
        answer: is asked one question after another. Axes of size 1 and questions with one answer are left out.
    """
    factors = _factors(slice_, layout, answer)
    strides = _strides(slice_, layout, factors, answer)
    chosen = []
    for axis, ((name, size), row) in enumerate(zip(layout.axes, factors, strict=True)):
        choices = walks(row, ordered=name in ordered, closed=closes(row, slice_))
        question = Question(
            name=f"walk {name}={size} {_text(row)}",
            choices=tuple(_WORDS[walk.word] for walk in choices),
            means=choices,
            axis=axis,
        )
        chosen.append(choices[_ask(question, answer)])
    return Structure(slice_=slice_, layout=layout, factors=factors, strides=strides, walks=tuple(chosen))


def describe(
    slice_: Slice, layout: Layout, ordered: Collection[str], devices: Sequence[int]
) -> dict[Question, str] | None:
    """Returns the questions whose answers make a placement, with the answers; None if it is not structured.

    Args:
        slice_: where it is.
        layout: whose mesh axes are placed.
        ordered: as for `structure`.
        devices: device index of each flattened mesh position.
    """
    known = _Known.of(slice_, layout, np.asarray(devices))
    answers: dict[Question, str] = {}

    def answer(question: Question) -> int:
        index = known.answer(question)
        answers[question] = question.choices[index]
        return index

    try:
        made = structure(slice_, layout, ordered, answer)
    except LookupError:
        return None
    return answers if np.array_equal(made.devices, devices) else None


def recall(slice_: Slice, layout: Layout, values: Mapping[str, str]) -> dict[Question, str]:
    """Returns the questions that were answered with these values, by name, of a placement of a layout."""
    answers: dict[Question, str] = {}

    def answer(question: Question) -> int:
        if question.name not in values:
            return 0  # a walk that did not matter
        answers[question] = values[question.name]
        return question.choices.index(values[question.name])

    structure(slice_, layout, layout.axis_names, answer)
    return answers


@dataclass(frozen=True, slots=True)
class _Known:
    """A placement that answers questions about itself: where each step along each mesh axis leads."""

    steps: tuple[Ints, ...]
    """For each mesh axis, the way from its first position to each on every physical axis [size, physical axes]."""

    @classmethod
    def of(cls, slice_: Slice, layout: Layout, devices: Ints) -> _Known:
        extents = np.array([*slice_.shape, slice_.cores])
        places = (devices[:, None] // device_strides(slice_) % extents).reshape(*layout.shape, len(extents))
        origin = (0,) * len(layout.shape)
        lines = [places[(*origin[:axis], slice(None), *origin[axis + 1 :])] for axis in range(len(layout.shape))]
        return cls(tuple(line - line[0] for line in lines))

    def answer(self, question: Question) -> int:
        """Returns the index of the answer. Raises LookupError if none fits."""
        kind = question.name.split(" ", 1)[0]
        wanted: object
        if kind == "block":
            wanted = tuple(len(set(column)) for column in self.steps[question.axis].T.tolist())
        elif kind == "order":
            sharing = [axis for axis, steps in enumerate(self.steps) if steps[:, question.place].any()]
            wanted = tuple(sorted(sharing, key=lambda axis: self._stride(axis, question.place)))
        else:
            strides = [self._stride(question.axis, place) for place in range(self.steps[0].shape[1])]
            digits = tuple(map(tuple, (self.steps[question.axis] // strides).tolist()))
            wanted = next((walk for walk in question.means if isinstance(walk, Walk) and walk.digits == digits), None)
        for index, meaning in enumerate(question.means):
            if meaning == wanted:
                return index
        raise LookupError(question.name)

    def _stride(self, axis: int, place: int) -> int:
        ahead = [step for step in self.steps[axis][:, place].tolist() if step > 0]
        return min(ahead, default=1)


def _factors(slice_: Slice, layout: Layout, answer: Answer) -> tuple[Factors, ...]:
    room: Factors = (*slice_.shape, slice_.cores)
    out: list[Factors] = []
    for axis, (name, size) in enumerate(layout.axes):
        rows = tuple(block_rows(size, room))
        question = Question(
            name=f"block {name}={size} in {_text(room)}", choices=tuple(map(_text, rows)), means=rows, axis=axis
        )
        out.append(rows[_ask(question, answer)])
        room = tuple(extent // taken for extent, taken in zip(room, out[-1], strict=True))
    return tuple(out)


def _strides(slice_: Slice, layout: Layout, factors: Sequence[Factors], answer: Answer) -> tuple[Factors, ...]:
    strides = [[1] * len(factors[0]) for _ in factors]
    names = layout.axis_names
    for place, column in enumerate(zip(*factors, strict=True)):
        sharing = [axis for axis, factor in enumerate(column) if factor > 1]
        physical = AXES[place] if place < len(slice_.shape) else "cores"
        orders = tuple(permutations(sharing))
        question = Question(
            name=f"order {physical} {'+'.join(names[axis] for axis in sharing)}",
            choices=tuple(" inside ".join(names[axis] for axis in order) for order in orders),
            means=orders,
            place=place,
        )
        stride = 1
        for axis in orders[_ask(question, answer)]:
            strides[axis][place] = stride
            stride *= column[axis]
    return tuple(map(tuple, strides))


def _ask(question: Question, answer: Answer) -> int:
    return answer(question) if len(question.choices) > 1 else 0


def _text(extents: Factors) -> str:
    *chips, cores = extents
    return "x".join(map(str, chips)) + (f" with {cores} cores" if cores > 1 else "")
