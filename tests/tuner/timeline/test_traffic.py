"""Who uses which link."""

import pytest

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Loop, Program
from tuner.slices.slice import Slice
from tuner.timeline.ranker import Ranker
from tuner.timeline.traffic import traffic

S = 1 << 20
SLICE = Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False))
LAYOUT = Layout.of({"cfg": 4, "ulysses": 4})
EXACT = Calibration(generation="v5e", link_bytes_per_s=1.0 * S, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)


def over(name, groups):
    return Collective(name=name, kind=CollectiveKind.ALL_TO_ALL, operand_bytes=S, result_bytes=S, groups=groups)


def test_links_know_whose_traffic_they_carry():
    rows = over("rows", tuple(tuple(range(4 * k, 4 * k + 4)) for k in range(4)))
    columns = over("columns", tuple(tuple(range(k, 16, 4)) for k in range(4)))
    program = Program(devices=16, schedule=(Loop(name="layers", trips=3, body=(rows,)), columns))
    ranker = Ranker(program, SLICE, LAYOUT, EXACT)
    placement = Placement(devices=tuple(range(16)))
    links = traffic(ranker, placement)
    assert len(links) == 48
    busiest = links[0]
    assert busiest.busy_s == pytest.approx(3.0)
    assert busiest.by_axes == (("ulysses", pytest.approx(3.0)),)
    assert busiest.ends[0][1] == busiest.ends[1][1]  # along x
    by_name = {link.name: link for link in links}
    assert by_name["0,1->0,2"].by_axes == (("cfg", pytest.approx(1.0)),)
    assert ranker.predict(placement).busiest_link == busiest.name
    assert ranker.predict(placement).busiest_link_s == pytest.approx(3.0)


def test_idle_links_are_listed_last():
    pair = over("pairs", tuple((k, k + 1) for k in range(0, 16, 2)))
    links = traffic(
        Ranker(Program(devices=16, schedule=(pair,)), SLICE, LAYOUT, EXACT), Placement(devices=tuple(range(16)))
    )
    assert links[-1].busy_s == 0
    assert links[-1].by_axes == ()
    assert sum(link.busy_s > 0 for link in links) == 16
