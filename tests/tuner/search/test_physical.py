import random
from collections.abc import Sequence

import numpy as np
import pytest

from tuner.layouts.layout import Layout
from tuner.placements.default import row_major
from tuner.placements.families import structures
from tuner.search.physical import Question, describe, structure
from tuner.slices.names import parse_slice
from tuner.slices.slice import Slice

CASES = [
    ("v5e-2x4", {"cfg": 2, "ulysses": 4}),
    ("v6e-8x8", {"cfg": 2, "ring": 8, "tensor": 4}),
    ("v6e-4x4", {"a": 1, "b": 16, "c": 1}),
    ("v5p-2x2x4", {"a": 4, "b": 2, "c": 2}),
    ("v5p-2x3x4", {"a": 6, "b": 4}),  # no host has such chips, but threes divide apart from twos
    ("v7x-2x2x2", {"a": 4, "b": 4}),
]


def slice_of(name: str) -> Slice:
    if name == "v5p-2x3x4":
        return Slice(generation_name="v5p", shape=(2, 3, 4), wrap=(False,) * 3)
    return parse_slice(name)


@pytest.mark.parametrize(("name", "axes"), CASES)
@pytest.mark.parametrize("all_ordered", [False, True])
def test_every_structured_placement_is_described_and_made_again(
    name: str, axes: dict[str, int], all_ordered: bool
) -> None:
    slice_, layout = slice_of(name), Layout.of(axes)
    ordered = frozenset(axes) if all_ordered else frozenset()
    seen = set()
    for wanted in structures(slice_, layout, ordered):
        answers = describe(slice_, layout, ordered, wanted.devices.tolist())
        assert answers is not None
        made = structure(slice_, layout, ordered, lambda q, a=answers: q.choices.index(a[q]))  # type: ignore[misc]
        assert np.array_equal(made.devices, wanted.devices)
        assert made.description == wanted.description
        seen.add(tuple(sorted((question.name, value) for question, value in answers.items())))
    assert len(seen) == len({tuple(s.devices.tolist()) for s in structures(slice_, layout, ordered)})


@pytest.mark.parametrize(("name", "axes"), CASES)
def test_any_answers_are_legal_and_domains_depend_on_the_name_only(name: str, axes: dict[str, int]) -> None:
    slice_ = slice_of(name)
    domains: dict[str, tuple[str, ...]] = {}
    rng = random.Random(0)
    sizes = list(axes.items())

    def answer(question: Question) -> int:
        assert len(question.choices) > 1
        assert len(set(question.choices)) == len(question.choices)
        assert domains.setdefault(question.name, question.choices) == question.choices
        return rng.randrange(len(question.choices))

    for _ in range(200):
        rng.shuffle(sizes)  # other meshes of the same axes and sizes share names
        layout = Layout.of({axis: size for (axis, _), (_, size) in zip(axes.items(), sizes, strict=True)})
        made = structure(slice_, layout, frozenset(axes), answer)
        assert sorted(made.devices.tolist()) == list(range(slice_.num_devices))


def test_names_say_what_is_asked() -> None:
    slice_, layout = parse_slice("v6e-8x8"), Layout.of({"cfg": 2, "ulysses": 32})
    last = list(structures(slice_, layout, frozenset({"ulysses"})))[-1]
    answers = describe(slice_, layout, frozenset({"ulysses"}), last.devices.tolist())
    assert answers is not None
    assert {question.name: value for question, value in answers.items()} == {
        "block cfg=2 in 8x8": "2x1",
        "order x cfg+ulysses": "ulysses inside cfg",
        "walk ulysses=32 4x8": "columns",
    }


@pytest.mark.parametrize("swap", [(0, 1), (3, 12), (5, 6)])
def test_a_placement_with_exchanged_devices_is_not_described(swap: Sequence[int]) -> None:
    slice_, layout = parse_slice("v6e-4x4"), Layout.of({"a": 4, "b": 4})
    devices = list(row_major(slice_).devices)
    assert describe(slice_, layout, frozenset("ab"), devices) is not None
    devices[swap[0]], devices[swap[1]] = devices[swap[1]], devices[swap[0]]
    assert describe(slice_, layout, frozenset("ab"), devices) is None
