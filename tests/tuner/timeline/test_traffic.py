"""Who uses which link."""

import json

import pytest

from tuner.calibration.calibration import Calibration, calibration
from tuner.layouts.layout import Layout
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Loop, Program
from tuner.slices.slice import Slice
from tuner.timeline.prediction import Prediction
from tuner.timeline.ranker import Ranker
from tuner.timeline.traffic import draw

S = 1 << 20
SLICE = Slice(generation_name="v5e", shape=(4, 4), wrap=(False, False))
LAYOUT = Layout.of({"cfg": 4, "ulysses": 4})
EXACT = Calibration(generation="v5e", link_bytes_per_s=1.0 * S, link_efficiency=1.0, hop_s=0.0, launch_s=0.0)


def over(name, groups):
    return Collective(name=name, kind=CollectiveKind.ALL_TO_ALL, operand_bytes=S, result_bytes=S, groups=groups)


def predicted(*nodes):
    ranker = Ranker(Program(devices=16, schedule=nodes), SLICE, LAYOUT, EXACT)
    return ranker.predict(Placement(devices=tuple(range(16))))


ROWS = over("rows", tuple(tuple(range(4 * k, 4 * k + 4)) for k in range(4)))
COLUMNS = over("columns", tuple(tuple(range(k, 16, 4)) for k in range(4)))


def test_links_know_whose_traffic_they_carry():
    result = predicted(Loop(name="layers", trips=3, body=(ROWS,)), COLUMNS)
    assert (result.links, result.idle_links, len(result.busy_links)) == (48, 0, 48)
    busiest = result.busy_links[0]
    assert busiest.busy_s == pytest.approx(3.0)
    assert busiest.by_axes == (("ulysses", pytest.approx(3.0)),)
    assert (result.busiest_link, result.busiest_link_s) == (busiest.name, busiest.busy_s)
    by_name = {link.name: link for link in result.busy_links}
    assert by_name["0,1->0,2"].by_axes == (("cfg", pytest.approx(1.0)),)


def test_idle_links_are_counted():
    result = predicted(over("pairs", tuple((k, k + 1) for k in range(0, 16, 2))))
    assert (len(result.busy_links), result.idle_links) == (16, 32)


def test_a_prediction_with_links_survives_json():
    result = predicted(ROWS, COLUMNS)
    assert Prediction.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def test_the_picture_shows_the_load_of_each_link():
    picture = draw(SLICE, predicted(over("pairs", tuple((k, k + 1) for k in range(0, 16, 2)))).busy_links)
    rows = picture.splitlines()
    assert rows[0] == "o--100--o---.---o--100--o"
    assert rows[1].split() == ["."] * 4
    assert len(rows) == 7


def test_a_cube_is_drawn_plane_by_plane():
    cube = Slice(generation_name="v5p", shape=(2, 2, 2), wrap=(False,) * 3)
    layout = Layout.of({"a": 4, "b": 2})
    op = over("pairs", tuple((k, k + 4) for k in range(4)))
    ranker = Ranker(Program(devices=8, schedule=(op,)), cube, layout, calibration("v5p"))
    picture = draw(cube, ranker.predict(Placement(devices=tuple(range(8)))).busy_links)
    assert "to z=1: 100 100 100 100" in picture
    assert picture.count("z=0") == 1
