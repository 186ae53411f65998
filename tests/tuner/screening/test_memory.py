"""What cannot fit is refused with its numbers; what is not known is not refused."""

from __future__ import annotations

import pytest

from tuner.ports import Screened
from tuner.program.program import Memory, Program
from tuner.rejections import RejectReason, Stage
from tuner.screening.memory import memory_rejection, needed_bytes
from tuner.slices.names import parse_slice

GIB = 1 << 30
SLICE = parse_slice("v5e-2x4")
FREE = SLICE.generation.hbm_bytes - 15 * GIB


def screened(memory: Memory | None) -> Screened:
    return Screened(program=Program(devices=8, schedule=(), memory=memory), least_bytes=0, digest="")


def test_what_results_share_with_arguments_is_held_once() -> None:
    memory = Memory(argument_bytes=9 * GIB, output_bytes=8 * GIB, temp_bytes=0, alias_bytes=8 * GIB)
    assert needed_bytes(screened(memory)) == 9 * GIB
    assert memory_rejection(screened(memory), SLICE) is None


@pytest.mark.parametrize(("reserve", "fits"), [(0, True), (FREE, True), (FREE + 1, False)])
def test_other_residents_take_their_part(reserve: int, fits: bool) -> None:
    rejection = memory_rejection(
        screened(Memory(argument_bytes=15 * GIB, output_bytes=0, temp_bytes=0)), SLICE, reserve_bytes=reserve
    )
    assert (rejection is None) is fits
    if rejection is not None:
        assert (rejection.stage, rejection.reason) == (Stage.SCREEN, RejectReason.HBM)
        assert rejection.numbers == {
            "needed_bytes": 15 * GIB,
            "available_bytes": SLICE.generation.hbm_bytes - reserve,
            "reserve_hbm_bytes": reserve,
        }
        assert "15.00 GiB" in rejection.detail


def test_unknown_memory_is_not_refused() -> None:
    assert needed_bytes(screened(None)) is None
    assert memory_rejection(screened(None), SLICE) is None
