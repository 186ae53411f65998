"""Published pairs of placements: the same program and slice, only the order of devices differs.

The rows and their sources are in tests/assets/published/placements.json. The traffic of each row is declared here from
the row's own words, one collective over the mesh axis that the change was about; the share of communication in the step
is not published, so the gain is reported for shares from 10 to 50 %.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tuner.calibration.calibration import CALIBRATIONS
from tuner.layouts.layout import Layout
from tuner.network.rings import block_cycle
from tuner.placements.default import jax_default
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker

ROWS = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[2] / "assets/published/placements.json").read_text())["rows"]
}
BYTES = 64 << 20
RINGS = [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER]


def slice_of(row):
    return Slice(generation_name=row["generation"], shape=tuple(row["chips"]), wrap=tuple(row["wrap"]))


def over_last_axis(layout, kind):
    size = layout.shape[-1]
    members = tuple(tuple(range(k, k + size)) for k in range(0, layout.devices, size))
    permute = kind is CollectiveKind.COLLECTIVE_PERMUTE
    return Collective(
        name="c",
        kind=kind,
        operand_bytes=BYTES // (size if kind is CollectiveKind.ALL_GATHER else 1),
        result_bytes=BYTES,
        groups=() if permute else members,
        pairs=tuple((g[k], g[(k + 1) % size]) for g in members for k in range(size)) if permute else (),
    )


def times(row, layout, kind, *placements):
    program = Program(devices=layout.devices, schedule=(over_last_axis(layout, kind),))
    ranker = Ranker(program, slice_of(row), layout, CALIBRATIONS[row["generation"]])
    return ranker.step_s(np.array(placements)).tolist()


def gains(before, after):
    """Gain of the whole step at communication shares of 10 and 50 % before."""
    return [1 / (1 - share + share * after / before) for share in (0.1, 0.5)]


def blocks_as_rings(slice_, width, height):
    cycle = block_cycle(width, height)
    corners = [(x, y) for y in range(0, slice_.shape[1], height) for x in range(0, slice_.shape[0], width)]
    return [slice_.device((x + dx, y + dy)) for x, y in corners for dx, dy in cycle]


@pytest.mark.parametrize("kind", RINGS)
def test_maxtext_4911_rings_in_blocks_beat_lines(kind):
    row = ROWS["maxtext-4911"]
    layout, slice_ = Layout.of(row["mesh"]), slice_of(row)
    lines = [slice_.device((x, y)) for y in range(16) for x in range(8)]
    before, after = times(row, layout, kind, lines, blocks_as_rings(slice_, 4, 2))
    assert after < before
    low, high = gains(before, after)
    assert low <= row["gain"] <= high, (low, high)


def test_maxtext_4911_before_is_jaxs_default():
    row = ROWS["maxtext-4911"]
    slice_, layout = slice_of(row), Layout.of(row["mesh"])
    first = jax_default(slice_, layout).devices[:8]
    assert [slice_.coords(device) for device in first] == [(x, 0) for x in range(8)]


def test_maxtext_1430_a_ring_beats_the_default_for_permutes_only():
    row = ROWS["maxtext-1430"]
    slice_, layout = slice_of(row), Layout.of(row["mesh"])
    default, ring = jax_default(slice_, layout).devices, blocks_as_rings(slice_, 2, 4)
    before, after = times(row, layout, CollectiveKind.COLLECTIVE_PERMUTE, default, ring)
    assert after < before  # by the latency of hops only: one-way permutes share no link in either order
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        before, after = times(row, layout, kind, default, ring)
        assert before == pytest.approx(after)
