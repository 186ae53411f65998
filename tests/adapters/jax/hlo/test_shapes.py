from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.jax.hlo.shapes import VMEM, Shape, shapes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[1024,1024]", 4 << 20),
        ("bf16[2048,1024]{1,0:T(8,128)(2,1)}", 4 << 20),
        ("bf16[1,32768,3,128]{3,2,0,1:T(4,128)(2,1)}", 32768 * 4 * 128 * 2),  # 3 heads padded to 4
        ("bf16[54,128]{1,0:T(8,128)(2,1)S(1)}", 56 * 128 * 2),
        ("bf16[2048,100]{0,1:T(8,128)(2,1)}", 104 * 2048 * 2),  # rows are minor, so columns are padded
        ("f32[2000]{0:T(1024)}", 2048 * 4),
        ("s32[16]{0:T(8,128)}", 8 * 128 * 4),
        ("pred[8,128]{1,0:T(8,128)(4,1)}", 1024),
        ("s4[256,256]{1,0:T(8,128)(8,1)E(4)}", 256 * 256 // 2),
        ("f8e4m3fn[128,128]{1,0:T(8,128)(4,1)}", 128 * 128),
        ("u32[]{:S(2)}", 4),
        ("token[]", 0),
    ],
)
def test_bytes_with_padding(text: str, expected: int) -> None:
    (shape,) = shapes(text)
    assert shape.bytes == expected


def test_a_tuple_lists_its_arrays_in_order() -> None:
    found = shapes("(s32[]{:T(128)}, bf16[4,128]{1,0:T(4,128)(2,1)S(1)}, /*index=2*/f32[8,128]{1,0:T(8,128)})")
    assert [shape.dtype for shape in found] == ["s32", "bf16", "f32"]
    assert [shape.scalar for shape in found] == [True, False, False]
    assert [shape.space for shape in found] == [0, VMEM, 0]


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.permutations(range(4)),
    st.sampled_from([(), (1024,), (8, 128), (2, 128), (16, 128)]),
)
def test_padding_never_loses_an_element(sizes: list[int], order: list[int], tile: tuple[int, ...]) -> None:
    minor = tuple(dimension for dimension in order if dimension < len(sizes))
    shape = Shape(dtype="bf16", dimensions=tuple(sizes), minor_to_major=minor, tile=tile, bits=16)
    assert shape.bytes >= shape.elements * 2
    assert shape.bytes % max(1, 2 * (tile[-1] if tile else 1)) == 0
