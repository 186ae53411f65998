import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement

names = st.text("abcdefgh", min_size=1, max_size=4)
layouts = st.builds(
    Layout.of,
    st.dictionaries(names, st.integers(1, 16), max_size=4),
    st.dictionaries(names, st.integers(-5, 5) | st.text(max_size=5), max_size=4),
)


@given(layouts)
def test_json_round_trip(layout: Layout) -> None:
    assert Layout.from_json(layout.to_json()) == layout
    candidate = Candidate(layout=layout, compiler_options=(("b", "1"), ("a", "true")))
    assert Candidate.from_json(candidate.to_json()) == candidate


def test_the_order_of_axes_is_part_of_a_layout_and_that_of_options_is_not() -> None:
    assert Layout.of({"a": 2, "b": 4}).digest != Layout.of({"b": 4, "a": 2}).digest
    assert Layout.of({"a": 2}, {"x": 1, "y": 2}) == Layout.of({"a": 2}, {"y": 2, "x": 1})


def test_sizes_and_options() -> None:
    layout = Layout.of({"cfg": 2, "ulysses": 4}, {"weights": "replicated"})
    assert (layout.devices, layout.shape, layout.axis_names) == (8, (2, 4), ("cfg", "ulysses"))
    assert (layout.size("ulysses"), layout.size("tensor")) == (4, 1)
    assert layout.replace_options(weights="cfg").option("weights") == "cfg"
    with pytest.raises(InvalidValue, match="no option 'blocks'"):
        layout.option("blocks")


def test_bad_axes_are_named() -> None:
    with pytest.raises(InvalidValue, match="'cfg' has size 0"):
        Layout.of({"cfg": 0})
    with pytest.raises(InvalidValue, match="repeat a name"):
        Layout(axes=(("cfg", 2), ("cfg", 2)))


def test_a_candidate_is_another_one_under_another_placement_whatever_its_description() -> None:
    layout = Layout.of({"data": 2})
    plain = Candidate(layout=layout)
    placed, renamed, turned = (
        Candidate(layout=layout, placement=Placement(devices=devices, description=description))
        for devices, description in (((0, 1), "as listed"), ((0, 1), "row-major"), ((1, 0), "as listed"))
    )
    assert len({plain.digest, placed.digest, turned.digest}) == 3
    assert placed.digest == renamed.digest
    assert "placement" not in plain.to_json()
    for candidate in (plain, placed, turned):
        assert Candidate.from_json(json.loads(json.dumps(candidate.to_json()))) == candidate
