"""Whether a candidate can fit at all: a lower bound on the bytes that one device must hold."""

from __future__ import annotations

from tuner.ports import Screened
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice

_GIB = 1 << 30


def needed_bytes(screened: Screened) -> int | None:
    """Returns the least that a device holds: arguments and results, what both share once, and the screen's temporaries.

    None if the screen does not know the memory.
    """
    return None if screened.program.memory is None else screened.program.memory.total_bytes


def memory_rejection(screened: Screened, slice_: Slice, *, reserve_bytes: int = 0) -> Rejection | None:
    """Returns why a candidate cannot fit beside `reserve_bytes` of other residents, or None if it may.

    None does not mean that it fits: the screen does not count temporaries.
    """
    needed = needed_bytes(screened)
    available = slice_.generation.hbm_bytes - reserve_bytes
    if needed is None or needed <= available:
        return None
    reserved = f" after {reserve_bytes / _GIB:.2f} GiB kept for others" if reserve_bytes else ""
    return Rejection(
        stage=Stage.SCREEN,
        reason=RejectReason.HBM,
        detail=(
            f"arguments and results alone need {needed / _GIB:.2f} GiB on each device; "
            f"{slice_.generation_name} has {available / _GIB:.2f} GiB{reserved}"
        ),
        numbers={"needed_bytes": needed, "available_bytes": available, "reserve_hbm_bytes": reserve_bytes},
    )
