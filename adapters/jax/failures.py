"""What the compiler and the devices say when they fail, as named rejections with their numbers.

Texts differ between versions and between the ways to run out of memory, so they are matched on the parts that stay:
the memory space, and the amounts that were needed and that there are.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tuner.rejections import Rejection, RejectReason, Stage

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_AMOUNT = r"(\d+(?:\.\d+)?)([KMGT]?)"
_NEEDED_AND_AVAILABLE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Scoped allocation with size {_AMOUNT} and limit {_AMOUNT}",
        rf"Used {_AMOUNT} of {_AMOUNT} (?:hbm|vmem)",
        rf"\({_AMOUNT}\) exceeds available (?:HBM|VMEM) \({_AMOUNT}\)",
    )
)
_AVAILABLE = re.compile(rf"exceeds available (?:HBM|VMEM) \({_AMOUNT}\)")
_HBM = re.compile(r"CompileTimeHbmOom|memory space hbm|on HBM|available HBM")
_VMEM = re.compile(r"CompileTimeScopedVmemOom|CompileTimeVmemOom|memory space vmem|scoped vmem|available VMEM")
_KERNEL = re.compile(r"allocating on stack for %(\S+)")
_ROUTING = "limited ICI routing"
_LOST = re.compile(r"\b(?:UNAVAILABLE|DATA_LOSS|ABORTED|DEADLINE_EXCEEDED|CANCELLED)\b|[Dd]evice.{0,40}(?:lost|halted)")

MAX_DETAIL = 600
"""Characters of the compiler's words that a rejection keeps."""


def rejection(text: str) -> Rejection:
    """Returns the rejection of a compile that failed with `text`.

    Memory comes with ``needed_bytes`` and ``available_bytes`` where the text names them; what is not known is left out.
    """
    if _HBM.search(text):
        return _out_of_memory(RejectReason.HBM, "HBM", text)
    if _VMEM.search(text):
        kernel = _KERNEL.search(text)
        return _out_of_memory(RejectReason.SCOPED_VMEM, f"VMEM by {kernel[1]}" if kernel else "VMEM", text)
    return _refused(RejectReason.ROUTING if _ROUTING in text else RejectReason.COMPILER_ERROR, text, {})


def aborted(how: str, exit_code: int, last_words: str) -> Rejection:
    """Returns the rejection of a compile that took its process down: `how` it ended and what it said last."""
    if _ROUTING in last_words:
        return _refused(RejectReason.ROUTING, last_words, {})
    return Rejection(
        stage=Stage.COMPILE,
        reason=RejectReason.COMPILER_ABORT,
        detail=_sentence(f"the compiler's process ended with {how}: {last_words}"),
        numbers={"exit_code": exit_code},
    )


def not_lowered(error: Exception) -> Rejection:
    """Returns the rejection of a step that JAX could not lower."""
    return _refused(RejectReason.LOWERING_ERROR, f"{type(error).__name__}: {error}", {})


def late(timeout_s: float) -> Rejection:
    """Returns the rejection of a compile that took too long."""
    return _refused(RejectReason.TIMEOUT, f"the compile took longer than {timeout_s:g} s", {"timeout_s": timeout_s})


def not_run(error: BaseException) -> Rejection:
    """Returns the rejection of a candidate whose step could not be built, compiled or run on the attached devices."""
    text = f"{type(error).__name__}: {error}"
    if "RESOURCE_EXHAUSTED" in text and not _VMEM.search(text):
        return replace(_out_of_memory(RejectReason.HBM, "HBM", text), stage=Stage.MEASURE)
    known = rejection(text)
    if known.reason is RejectReason.COMPILER_ERROR:
        known = replace(known, reason=RejectReason.DEVICE_LOST if _LOST.search(text) else RejectReason.RUN_ERROR)
    return replace(known, stage=Stage.MEASURE)


def run_aborted(how: str, exit_code: int, last_words: str) -> Rejection:
    """Returns the rejection of a candidate whose process ended while it was measured."""
    return Rejection(
        stage=Stage.MEASURE,
        reason=RejectReason.RUN_ABORT,
        detail=_sentence(f"the process that ran it ended with {how}: {last_words}"),
        numbers={"exit_code": exit_code},
    )


def run_late(timeout_s: float) -> Rejection:
    """Returns the rejection of a candidate whose measurement took too long: a hang, most likely."""
    return Rejection(
        stage=Stage.MEASURE,
        reason=RejectReason.TIMEOUT,
        detail=f"the measurement took longer than {timeout_s:g} s",
        numbers={"timeout_s": timeout_s},
    )


def _out_of_memory(reason: RejectReason, where: str, text: str) -> Rejection:
    for pattern in _NEEDED_AND_AVAILABLE:
        if (found := pattern.search(text)) is not None:
            needed, needed_unit, available, available_unit = found.groups()
            numbers = {
                "needed_bytes": _bytes(needed, needed_unit),
                "available_bytes": _bytes(available, available_unit),
            }
            detail = f"needs {needed}{needed_unit} of {available}{available_unit} {where}: {text}"
            return _refused(reason, detail, numbers)
    only = _AVAILABLE.search(text)
    return _refused(reason, text, {} if only is None else {"available_bytes": _bytes(only[1], only[2])})


def _bytes(amount: str, unit: str) -> float:
    return float(round(float(amount) * _UNITS[unit]))


def _refused(reason: RejectReason, text: str, numbers: dict[str, float]) -> Rejection:
    return Rejection(stage=Stage.COMPILE, reason=reason, detail=_sentence(text), numbers=numbers)


def _sentence(text: str) -> str:
    """The first lines without the stack of Python frames that may follow them."""
    text = re.split(r"\n\s*(?:Suspected Python Code Location|=== Source Location Trace|Program \w+ requirement)", text)[
        0
    ]
    return " ".join(text.split())[:MAX_DETAIL]
