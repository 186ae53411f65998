"""Rings against what the compiler built: recorded for all cases, asked again for a sample.

benchmarks/record_rings.py wrote tests/assets/rings. A ring is compared as a closed walk, in either direction.
"""

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tuner.network.rings import all_walks, axis_walks, block_cycle, folded, may_have_own_order, rectangle_ring, walks
from tuner.slices.slice import Slice

ASSETS = Path(__file__).parents[2] / "assets/rings"
RECORDED = [
    (document["about"]["generation"], case)
    for document in (json.loads(path.read_text()) for path in sorted(ASSETS.glob("*.json")))
    for case in document["cases"]
]


def slice_of(generation, case):
    return Slice(generation_name=generation, shape=tuple(case["shape"]), wrap=tuple(map(bool, case["wrap"])))


def edges(rings):
    return Counter(frozenset(pair) for ring in rings for pair in pairwise([*ring, ring[0]]))


def by_axis(case):
    """Whether the compiler works axis by axis, as far as it says so."""
    return "ND" in case["strategy"] or any(f"phases:{n}" in case["strategy"] for n in (2, 3))


def verdict(generation, case):
    """What is wrong with our rings for a case; empty if nothing is."""
    slice_, groups = slice_of(generation, case), case["groups"]
    ours_by_axis = all(axis_walks(slice_, group) is not None for group in groups)
    if ours_by_axis != by_axis(case):
        return f"{case['strategy']}, ours {'by axis' if ours_by_axis else 'one ring'}"
    if ours_by_axis or not case["rings"]:
        return ""
    ours = [ring for walks_ in all_walks(slice_, groups) for walk in walks_ for ring in walk.rings]
    return "" if edges(ours) == edges(case["rings"]) else f"{case['rings'][0]}, ours {ours[0]}"


@pytest.mark.parametrize("generation", ["v4", "v5e", "v5p", "v6e", "v7x"])
def test_rings_equal_those_that_the_compiler_built(generation):
    cases = [case for name, case in RECORDED if name == generation and "error" not in case]
    assert len(cases) >= 40
    wrong = {f"{case['shape']} {case['wrap']} {case['what']}": verdict(generation, case) for case in cases}
    assert {what: text for what, text in wrong.items() if text} == {}


@pytest.mark.compiler
def test_a_sample_is_still_what_the_compiler_builds():
    sample = [(name, case) for name, case in RECORDED if "error" not in case and np.prod(case["shape"]) <= 64][::41]
    questions = []
    for name, case in sample:
        slice_ = slice_of(name, case)
        facts = slice_.generation
        questions.append(
            {
                "topology": f"{facts.topology_prefix}:{'x'.join(map(str, slice_.shape))}",
                "config": facts.chip_config,
                "wrap": [*case["wrap"], 0][:3] if any(case["wrap"]) else None,
                "groups": [[[*[*slice_.coords(d), 0][:3], slice_.core(d)] for d in group] for group in case["groups"]],
                "op": "all-reduce",
                "kib": 4096,
            }
        )
    asked = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ring_probe.py"))],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers = [json.loads(line) for line in asked.stdout.splitlines()]
    assert len(answers) == len(sample) >= 10
    wrong = []
    for (name, case), answer in zip(sample, answers, strict=True):
        flat = [device for group in case["groups"] for device in group]
        live = {**case, "strategy": answer["strategy"], "rings": [[flat[k] for k in r] for r in answer["rings"]]}
        if text := verdict(name, live):
            wrong.append((name, case["what"], text))
    assert wrong == []


@pytest.mark.parametrize("n", range(3, 20))
def test_a_folded_line_has_no_hop_over_two(n):
    line = folded(n)
    assert sorted(line) == list(range(n))
    assert max(abs(a - b) for a, b in pairwise([*line, line[0]])) == 2


@pytest.mark.parametrize(("width", "height"), [(2, 2), (2, 5), (5, 2), (3, 4), (4, 3), (8, 16)])
def test_an_even_block_is_a_cycle_of_single_hops(width, height):
    walk = block_cycle(width, height)
    assert sorted(walk) == [(x, y) for x in range(width) for y in range(height)]
    assert {abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise([*walk, walk[0]])} == {1}


def test_groups_that_are_no_rectangles_have_no_order_of_their_own():
    slice_ = Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False))
    assert rectangle_ring(slice_, (0, 1, 2, 4)) is None  # an L
    assert rectangle_ring(slice_, (0, 5, 10, 15)) is None  # a diagonal
    assert rectangle_ring(slice_, (0, 1, 3)) is None  # uneven
    assert rectangle_ring(slice_, (3, 0, 1, 2)) == (0, 1, 3, 2)


def test_the_quick_look_never_overlooks_an_order():
    for name, case in RECORDED[::7]:
        slice_, groups = slice_of(name, case), np.array(case["groups"])
        quick = may_have_own_order(slice_, groups)
        assert all(quick[row] for row, group in enumerate(groups.tolist()) if walks(slice_, group) is not None)
