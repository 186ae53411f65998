"""Pictures of placements."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.web.pictures import svg
from adapters.web.pictures.roads import level
from adapters.web.pictures.routes import Route
from adapters.web.pictures.scene import Scene, compared
from adapters.web.pictures.slices import SlicePicture, describe, draw
from tests.adapters.web.pictures.readers import read, said, texts
from tuner.errors import InvalidValue, UnknownName
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default, row_major
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Program
from tuner.slices.links import links
from tuner.slices.names import parse_slice
from tuner.timeline.prediction import LinkTraffic

HOSTILE = "<script>alert(1)</script>\x00\u202e&\"'" + "x" * 10_000


def scene(name, kinds, degraded=(), **axes):
    """A slice and a program with collectives (kind, mesh axis)."""
    slice_, layout = parse_slice(name), Layout.of(axes)
    ids = np.arange(layout.devices).reshape(layout.shape)
    schedule = [Compute(name="dot", kind=ComputeKind.MATMUL, flops=1e12)]
    for number, (kind, axis) in enumerate(kinds):
        groups = np.moveaxis(ids, layout.axis_names.index(axis), -1).reshape(-1, layout.size(axis)).tolist()
        pairs = [(row[k], row[(k + 1) % len(row)]) for row in groups for k in range(len(row))]
        permute = kind == "collective-permute"
        schedule.append(
            Collective(
                name=f"c{number}",
                kind=CollectiveKind(kind),
                operand_bytes=1 << 24,
                result_bytes=1 << 24,
                groups=() if permute else tuple(map(tuple, groups)),
                pairs=tuple(pairs) if permute else (),
            )
        )
    return Scene(Program(devices=layout.devices, schedule=tuple(schedule)), slice_, layout, degraded)


def shuffled(slice_):
    return Placement(devices=tuple(np.random.default_rng(0).permutation(slice_.num_devices).tolist()))


V5E = scene("v5e-4x4", [("all-gather", "ulysses"), ("collective-permute", "cfg")], cfg=4, ulysses=4)


def test_every_chip_says_where_in_the_mesh_it_is():
    picture = V5E.picture(row_major(V5E.slice_), title="plan", colour="cfg")
    root = read(draw(picture))
    chips = [text for text in said(root) if text.startswith("chip ")]
    assert len(chips) == 16
    assert "chip 2,1: cfg=2 ulysses=1, id 9" in chips
    assert {"0", "1", "2", "3"} <= set(texts(root))


def test_a_link_says_who_loads_it_and_the_busiest_is_named():
    picture = V5E.picture(jax_default(V5E.slice_, V5E.layout), title="default")
    words = said(read(draw(picture)))
    about_links = [text for text in words if "→" in text]
    assert len(about_links) == len(picture.links)
    assert all("all-gather over ulysses" in text or "collective-permute over cfg" in text for text in about_links)
    busiest = max(picture.links, key=lambda link: link.busy_s)
    assert busiest.name.replace("->", "→") in describe(picture)
    assert any(busiest.name.replace("->", "→") in text for text in texts(read(draw(picture))))


def test_loads_are_those_of_the_prediction():
    placement = shuffled(V5E.slice_)
    predicted = {link.name: link.busy_s for link in V5E.ranker.predict(placement).busy_links}
    drawn = {link.name: link.busy_s for link in V5E.picture(placement, title="plan").links}
    assert drawn == pytest.approx(predicted)


def test_the_ring_is_the_compilers():
    choice = V5E.choice("all-gather:ulysses")
    (first, *_) = V5E.walks(choice, jax_default(V5E.slice_, V5E.layout))
    assert [route.devices for route in first] == [(0, 1, 3, 2)]  # folded: no hop is longer than 2


def test_permutes_are_cycles_with_a_direction_and_open_chains_stay_open():
    walks = V5E.walks(V5E.choice("collective-permute:cfg"), row_major(V5E.slice_))
    assert len(walks) == 4
    assert all(route.directed and route.closed and len(route.hops) == 4 for walk in walks for route in walk)
    assert Route(devices=(0, 1), directed=True).hops == [(0, 1), (1, 0)]
    assert Route(devices=(0, 1)).hops == [(0, 1)]


def test_exchanges_outline_their_members():
    one = scene("v5e-2x4", [("all-to-all", "ulysses")], cfg=2, ulysses=4)
    picture = one.picture(row_major(one.slice_), title="plan")
    chosen = [route.devices for route in picture.routes if route.chosen]
    assert chosen == [(device,) for device in row_major(one.slice_).devices[:4]]
    assert len([route for route in picture.routes if not route.chosen]) == 4 + 6  # the other group has no lines


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("v5e-1x1", {"data": 1, "tensor": 1}),
        ("v5e-2x4", {"data": 2, "tensor": 4}),
        ("v6e-8x8", {"data": 4, "tensor": 16}),
        ("v5p-4x4x4", {"data": 4, "tensor": 16}),
        ("v5p-4x4x8_twisted", {"data": 8, "tensor": 16}),
        ("v7x-2x2x4", {"data": 8, "tensor": 4}),
        ("v5e-16x16", {"data": 16, "tensor": 16}),
    ],
)
def test_any_slice_can_be_drawn(name, axes):
    kinds = [("all-gather", "tensor"), ("all-reduce", "data")] if name != "v5e-1x1" else []
    one = scene(name, kinds, **axes)
    for placement in (row_major(one.slice_), jax_default(one.slice_, one.layout)):
        picture = one.picture(placement, title=name)
        root = read(draw(picture))
        chips = [text for text in said(root) if text.startswith("chip ")]
        assert len(chips) == one.slice_.num_devices


def test_every_link_is_drawn_once_or_at_both_ends_of_a_seam():
    one = scene("v5p-4x4x4", [("all-to-all", "tensor")], data=1, tensor=64)
    root = read(draw(one.picture(row_major(one.slice_), title="plan")))
    lines = "".join(e.get("d") for e in root.iter("path") if "q" in (e.get("class") or "").split())
    lines = lines.split("M")[1:]
    legend = 10
    seams = 2 * 2 * 16  # links over the seams of x and y have two ends on paper; those along z a corner each
    assert len(lines) == len(links(one.slice_)) + seams + legend


@pytest.mark.parametrize("random", [False, True])
def test_two_pictures_of_the_largest_slices_fit_on_a_page(random):
    one = scene("v6e-16x16", [("all-gather", "tensor"), ("all-reduce", "data")], data=16, tensor=16)
    placement = shuffled(one.slice_) if random else row_major(one.slice_)
    first = svg.document(draw(one.picture(placement, title="plan")))
    second = svg.document(draw(one.picture(jax_default(one.slice_, one.layout), title="default")))
    assert len(first) + len(second) < 180_000


def test_of_4096_chips_one_plane_is_drawn():
    one = scene("v5p-16x16x16", [("all-gather", "tensor")], data=64, tensor=64)
    for plane in (None, 7):
        drawing = draw(one.picture(row_major(one.slice_), title="plan", plane=plane))
        assert len(svg.document(drawing)) < 100_000
        assert any(text.startswith(f"z={plane or 0} (one of 16 planes)") for text in texts(read(drawing)))


def test_pictures_are_compared_under_one_scale():
    best = V5E.picture(row_major(V5E.slice_), title="plan")
    other = V5E.picture(shuffled(V5E.slice_), title="plan")
    full = compared([best, other])
    assert full == max(link.busy_s for picture in (best, other) for link in picture.links)
    assert V5E.picture(row_major(V5E.slice_), title="plan", full_s=full).scale_s == full


def test_what_cannot_run_has_no_loads_and_says_so():
    cut = [Degraded(ends=((x, 1), (x, 2)), rate=0.0) for x in range(4)]
    one = scene("v5e-4x4", [("all-gather", "ulysses")], cut, cfg=4, ulysses=4)
    picture = one.picture(row_major(one.slice_), title="plan")
    assert picture.step_s is None
    assert picture.links == ()
    assert "does not run here" in texts(read(draw(picture)))


@pytest.mark.parametrize(
    "wrong", [{"colour": "none"}, {"collective": "all-gather:none"}, {"group": 4}, {"group": -1}], ids=str
)
def test_unknown_choices_are_named(wrong):
    with pytest.raises(UnknownName, match=r"none|group"):
        V5E.picture(row_major(V5E.slice_), title="plan", **wrong)


def test_hostile_names_stay_text():
    traffic = LinkTraffic(name="0,0->1,0", busy_s=1.0, by_axes=((HOSTILE, 1.0),))
    picture = SlicePicture(
        title=HOSTILE,
        slice_=parse_slice("v5e-2x2"),
        axes=((HOSTILE, 4),),
        devices=(0, 1, 2, 3),
        colour=HOSTILE,
        links=(traffic,),
        step_s=math.inf,
        shown=HOSTILE,
    )
    assert len(svg.document(draw(picture))) < 20_000
    assert any("<script>" in text for text in said(read(draw(picture))))


def test_a_picture_must_be_whole():
    with pytest.raises(InvalidValue, match="do not fill"):
        SlicePicture(title="plan", slice_=V5E.slice_, axes=(("a", 4),), devices=(0, 1, 2, 3), colour="a")


def test_shades_follow_the_load():
    assert [level(share) for share in (0.0, math.nan, 1e-9, 1 / 9, 0.12, 1.0, 2.0)] == [0, 0, 1, 1, 2, 9, 9]


def test_slow_and_missing_links_are_marked():
    slow = [Degraded(ends=((0, 0), (1, 0)), rate=0.5), Degraded(ends=((2, 1), (2, 2)), rate=0.0)]
    one = scene("v6e-4x4", [("all-to-all", "ulysses")], slow, cfg=4, ulysses=4)
    picture = one.picture(row_major(one.slice_), title="plan")
    words = said(read(draw(picture)))
    assert "link 0,0 to 1,0: only 50 % of its rate" in words
    assert "link 2,1 to 2,2: missing" in words
    assert "0,0:1,0=0.5" in describe(picture)


@pytest.mark.parametrize("ends", [((0, 0, 0), (3, 0, 0)), ((0, 0, 0), (0, 0, 1)), ((0, 0, 0), (0, 0, 3))])
def test_links_over_a_seam_or_to_another_plane_are_marked_at_both_ends(ends):
    one = scene("v5p-4x4x4", [("all-reduce", "tensor")], [Degraded(ends=ends, rate=0.5)], data=4, tensor=16)
    words = said(read(draw(one.picture(row_major(one.slice_), title="plan"))))
    assert sum("50 % of its rate" in text for text in words) == 2


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["v5e-2x2", "v5e-2x4", "v6e-4x4", "v5p-2x2x2", "v4-2x2x4", "v7x-2x2x2"]),
    kind=st.sampled_from(["all-gather", "all-to-all", "collective-permute"]),
    seed=st.integers(0, 2**16),
    group=st.one_of(st.none(), st.just(0)),
)
def test_any_placement_is_drawn_whole(name, kind, seed, group):
    devices = parse_slice(name).num_devices
    one = scene(name, [(kind, "tensor")], data=devices // 4, tensor=4)
    placement = Placement(devices=tuple(np.random.default_rng(seed).permutation(devices).tolist()))
    picture = one.picture(placement, title=name, group=group)
    words = said(read(draw(picture)))
    assert sum(text.startswith("chip ") for text in words) == devices
    assert sum("→" in text for text in words) <= len(picture.links)
    for route in picture.routes:
        assert len(set(route.devices)) == len(route.devices)
        assert all(a != b for a, b in route.hops)


def test_many_readers_see_the_same():
    one = scene("v6e-4x4", [("all-to-all", "ulysses"), ("all-gather", "ulysses")], cfg=4, ulysses=4)
    placements = [Placement(devices=tuple(np.random.default_rng(seed).permutation(16).tolist())) for seed in range(40)]
    alone = {
        p: scene("v6e-4x4", [("all-to-all", "ulysses"), ("all-gather", "ulysses")], cfg=4, ulysses=4).picture(
            p, title=""
        )
        for p in placements
    }
    with ThreadPoolExecutor(8) as pool:
        pictures = list(pool.map(lambda p: one.picture(p, title=""), placements * 3))
    for placement, picture in zip(placements * 3, pictures, strict=True):
        assert picture == alone[placement]
