"""Whether a sharded step computes what the unsharded one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax.inputs import arrays
from adapters.jax.step import JaxWorkload, Step
from adapters.jax.topologies import auto_mesh
from tuner.layouts.layout import Layout
from tuner.rejections import Rejection, RejectReason, Stage

EXACT, ROUGH = 2e-3, 5e-2
"""Largest difference, as a share of the largest value, where products are exact to float32, and where they are not:
bfloat16 and float16 anywhere, and float32 on a TPU, which multiplies it in bfloat16 by default."""

ON_ONE_DEVICE_BYTES = 4 << 30
"""Larger workloads without a reduced form are not run on one device to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found: the difference as a share of the largest value, or why there was none, or what is wrong."""

    difference: float | None = None
    unchecked: str = ""
    wrong: Rejection | None = None


def reduced(workload: JaxWorkload) -> JaxWorkload:
    """Returns the workload's reduced form, if it has one (`reduced()`), else itself."""
    make = getattr(workload, "reduced", None)
    return workload if make is None else make()


def unsharded(workload: JaxWorkload, layout: Layout) -> Layout | None:
    """Returns the layout of one device with the same options where they are legal there, else with the defaults."""
    axes = dict.fromkeys(layout.axis_names, 1)
    for options in (dict(layout.options), workload.space.defaults()):
        single = Layout.of(axes, options)
        if workload.verdict(single) is None:
            return single
    return None


class Reference:
    """Results of unsharded steps, on one local device. A step is the same for most layouts, and is run once."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._results: dict[tuple[str, str], list[np.ndarray[Any, Any]]] = {}

    def check(self, workload: JaxWorkload, layout: Layout, result: Any, step: Step) -> Checked:
        """Compares a sharded result with the unsharded step on the same arguments.

        Args:
            workload: the step's.
            layout: the step's.
            result: what the sharded step returned for `arrays` of its arguments.
            step: the sharded step.
        """
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(step.arguments))
        single = unsharded(workload, layout)
        if single is None:
            return Checked(unchecked="the step cannot be laid out on one device")
        if size > ON_ONE_DEVICE_BYTES:
            return Checked(
                unchecked=f"{size} bytes of arguments are too many for one device, and the workload has no reduced()"
            )
        wanted = self._result(workload, single)
        found = jax.tree.leaves(result)
        if [leaf.shape for leaf in found] != [leaf.shape for leaf in wanted]:
            shapes = [leaf.shape for leaf in found], [leaf.shape for leaf in wanted]
            return Checked(
                wrong=_wrong(f"results have shapes {shapes[0]}, those of the unsharded step {shapes[1]}", {})
            )
        difference = max(map(_difference, found, wanted), default=0.0)
        tolerance = _tolerance(step, self._platform)
        if not difference <= tolerance:
            detail = f"the result differs from the unsharded step's by {difference:.3g} of its largest value"
            numbers = {"difference": difference, "tolerance": tolerance}
            return Checked(wrong=_wrong(f"{detail}; {tolerance:g} is legal", numbers))
        return Checked(difference=difference)

    def _result(self, workload: JaxWorkload, single: Layout) -> list[np.ndarray[Any, Any]]:
        key = workload.name, str(single)
        if key not in self._results:
            step = workload.step(single, auto_mesh(jax.local_devices()[:1], single), kernels=True)
            result = step.lower(self._platform).compile()(*arrays(step.arguments))
            self._results[key] = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
        return self._results[key]


def all_finite(result: Any) -> bool:
    """Returns whether this process's shards of a result hold finite numbers only."""
    shards = [shard.data for leaf in jax.tree.leaves(result) for shard in leaf.addressable_shards]
    return all(bool(jnp.isfinite(data).all()) for data in shards if jnp.issubdtype(data.dtype, jnp.inexact))


def not_finite() -> Rejection:
    """Returns the rejection of a step whose result holds NaN or infinity."""
    return _wrong("the result at full size holds values that are not finite", {})


def _difference(found: Any, wanted: np.ndarray[Any, Any]) -> float:
    """Compares this process's shards; NaN counts as infinitely far."""
    whole = wanted.astype(np.float64)
    largest = max(float(np.abs(whole).max(initial=0.0)), 1e-30)
    parts = [
        float(np.abs(np.asarray(shard.data).astype(np.float64) - whole[shard.index]).max(initial=0.0))
        for shard in found.addressable_shards
    ]
    worst = max(parts, default=0.0)
    return worst / largest if all(np.isfinite(parts)) and np.isfinite(largest) else float("inf")


def _tolerance(step: Step, platform: str) -> float:
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(step.arguments)}
    rough = platform == "tpu" or any(dtype in (jnp.bfloat16, jnp.float16) for dtype in dtypes)
    return ROUGH if rough else EXACT


def _wrong(detail: str, numbers: dict[str, float]) -> Rejection:
    return Rejection(stage=Stage.MEASURE, reason=RejectReason.WRONG_RESULT, detail=detail, numbers=numbers)
