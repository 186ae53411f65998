from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.jax.hlo.groups import parse_groups, parse_pairs
from tuner.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,1},{2,3}}, dimensions={0}", ((0, 1), (2, 3))),
        ("{{0,2,1,3}}", ((0, 2, 1, 3),)),
        ("{}, to_apply=%add", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("[4,2]<=[8], use_global_device_ids=true", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[4,2]<=[2,2,2]T(2,0,1)", ((0, 2), (4, 6), (1, 3), (5, 7))),
        ("mesh['a'=2,'b'=4] {'b'}, channel_id=1", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=2,'c'=2] {'c','a'}", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh['a'=2,'b'=1,'c'=4] {'b'}", tuple((member,) for member in range(8))),
        ("mesh[a=2,b=4] {b}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=4], device_ids=([8]<=[4,2]T(1,0)) {'b'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0) {'b'}", ((7, 6, 5, 4), (3, 2, 1, 0))),
        ("mesh['a'=8] {'a':(1)2}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=8] {'a':(4)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=8] {'a':(2)4}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=8] {'a':(4)2,'a':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ],
)
def test_forms(text: str, expected: tuple[tuple[int, ...], ...]) -> None:
    assert parse_groups(text, 8) == expected


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(InvalidValue, match="<8 of them>"):
        parse_groups("<8 of them>", 8)


def test_pairs() -> None:
    assert parse_pairs("{{0,1},{1,0}}, metadata={}") == ((0, 1), (1, 0))


@given(st.data())
def test_mesh_groups_cover_every_device_once(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axes = [f"x{index}" for index in range(len(sizes))]
    chosen = data.draw(st.lists(st.sampled_from(axes), min_size=1, unique=True))
    mesh = ",".join(f"'{axis}'={size}" for axis, size in zip(axes, sizes, strict=True))
    groups = parse_groups(f"mesh[{mesh}] {{{','.join(repr(axis) for axis in chosen)}}}", 0)
    devices = 1
    for size in sizes:
        devices *= size
    assert sorted(member for group in groups for member in group) == list(range(devices))
    # Members of one group differ only along the chosen axes.
    strides = dict.fromkeys(axes, 1)
    for position, axis in enumerate(axes):
        for size in sizes[position + 1 :]:
            strides[axis] *= size
    others = [(strides[axis], sizes[axes.index(axis)]) for axis in axes if axis not in chosen]
    for group in groups:
        assert len({tuple(member // stride % size for stride, size in others) for member in group}) == 1
