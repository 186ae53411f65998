"""Why a candidate left the funnel. A rejection is a value with a named reason and its numbers, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Stage(StrEnum):
    """Stages of the funnel in order. Values are stored: only add, never remove."""

    ENUMERATE = "enumerate"
    SCREEN = "screen"
    COMPILE = "compile"
    PLACE = "place"
    MEASURE = "measure"


class RejectReason(StrEnum):
    """Named reasons. Values are stored: only add, never remove."""

    INDIVISIBLE = "indivisible"
    ILLEGAL_OPTIONS = "illegal-options"
    CONFLICTING_RULES = "conflicting-rules"
    HBM = "hbm"
    SCOPED_VMEM = "scoped-vmem"
    BOUND = "bound"
    DUPLICATE = "duplicate"
    LOWERING_ERROR = "lowering-error"
    SCREEN_ABORT = "screen-abort"
    COMPILER_ERROR = "compiler-error"
    COMPILER_ABORT = "compiler-abort"
    TIMEOUT = "timeout"
    ROUTING = "routing"
    WRONG_RESULT = "wrong-result"
    SLOWER = "slower"
    RUN_ERROR = "run-error"
    RUN_ABORT = "run-abort"
    DEVICE_LOST = "device-lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A candidate's end.

    Attributes:
        stage: where it happened.
        reason: the named reason.
        detail: one sentence for people, with names and numbers.
        numbers: the same numbers for programs, with units in their names (``needed_bytes``, ``bound_s``).
    """

    stage: Stage
    reason: RejectReason
    detail: str
    numbers: Mapping[str, float] = field(default_factory=dict)
