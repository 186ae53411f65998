from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.plans.samples import make_plan
from tuner.plans.near import memory_sentence, sizes

GIB = 1 << 30
PLAN = make_plan(memory_bytes=3 * GIB)


def test_a_smaller_shape_needs_no_more_memory() -> None:
    assert memory_sentence(PLAN, "832x480x41", reserve_bytes=0) == (
        "memory was checked again: at most about 3.00 of 15.75 GiB"
    )


def test_a_larger_shape_needs_no_more_than_the_ratio_of_the_elements() -> None:
    assert "at most about 6.00 of 15.75 GiB" in memory_sentence(PLAN, "832x960x81", reserve_bytes=0)
    doubt = memory_sentence(PLAN, "832x960x81", reserve_bytes=10 * GIB)
    assert "may not be enough: 3.00 GiB for 832x480x81, up to 6.00 for this shape, of 5.75" in doubt


@pytest.mark.parametrize("shape", ["", "odd", "832x480", "0x0x0", "832x480x-81", "9" * 5000])
def test_what_cannot_be_told_is_said(shape: str) -> None:
    assert "not known" in memory_sentence(PLAN, shape, reserve_bytes=0)
    assert "not known" in memory_sentence(replace(PLAN, memory_bytes=None), "832x480x81", reserve_bytes=0)


@given(st.text())
def test_any_text_is_sizes_or_none(text: str) -> None:
    found = sizes(text)
    assert found is None or "x".join(map(str, found)).isascii()
