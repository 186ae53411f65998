"""What can be said, without the model's code, of a plan that is used for another shape than it was made for."""

from __future__ import annotations

import math
from functools import lru_cache

from tuner.plans.plan import Plan

NOT_CHECKED = "whether the plan is legal for this shape was not checked: that takes the model's code"
"""Said unless somebody who has the model replaces it by what the model says."""


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f}"


@lru_cache(maxsize=4096)
def sizes(shape: str) -> tuple[int, ...] | None:
    """Returns the sizes in a shape such as ``832x480x81``; None if it is no list of positive numbers."""
    parts = shape.split("x")
    # Python refuses to read numbers of thousands of digits, with an error of its own.
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 and int(part) for part in parts):
        return None
    return tuple(map(int, parts))


def memory_sentence(plan: Plan, shape: str, *, reserve_bytes: int) -> str:
    """Says whether a plan's memory is enough for another shape.

    Weights do not depend on the shape, and what does grows no faster than the number of elements: attention is computed
    in blocks. So a plan needs at least what it needed for a smaller shape, and at most that much times the ratio of the
    elements, but for padding.
    """
    wanted, made = sizes(shape), sizes(plan.workload.shape)
    available = plan.slice.generation.hbm_bytes - reserve_bytes
    if plan.memory_bytes is None or wanted is None or made is None or len(wanted) != len(made):
        return "whether the plan fits the memory for this shape is not known"
    ratio = math.prod(wanted) / math.prod(made)
    most = math.ceil(plan.memory_bytes * max(ratio, 1.0))
    if most <= available:
        return f"memory was checked again: at most about {_gib(most)} of {_gib(available)} GiB"
    return (
        f"memory was checked again and may not be enough: {_gib(plan.memory_bytes)} GiB for {plan.workload.shape}, "
        f"up to {_gib(most)} for this shape, of {_gib(available)}"
    )
