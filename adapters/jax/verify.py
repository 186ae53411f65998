"""Whether a plan still computes the right thing on the devices that are here, with the compiler that is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from adapters.jax.answer import Reference, reduced
from adapters.jax.apply import apply
from adapters.jax.inputs import arrays
from adapters.jax.step import JaxWorkload
from tuner.errors import InvalidValue, TunerError
from tuner.plans.plan import Plan, StoredPlan


class WrongResult(TunerError):
    """A plan's step does not compute what the unsharded step does; the text says by how much."""


def verify(plan: Plan | StoredPlan, workload: JaxWorkload, devices: Sequence[Any] | None = None) -> float:
    """Compares a plan's sharded step with the unsharded one, on the workload's reduced form (`reduced()`, else itself).

    For a plan that another compiler made (`Applied.differences`), before it is used: a stale plan may compile to
    something that is silently wrong.

    Args:
        plan: as a store holds it.
        workload: what the plan is for.
        devices: in any order; None for ``jax.devices()``.

    Returns:
        The largest difference, as a share of the largest value of the result.

    Raises:
        WrongResult: the difference is above what rounding explains.
        WrongDevices: the devices are not the plan's slice.
        InvalidValue: the plan is for another workload, or there is nothing to compare with.
    """
    plan = plan.plan if isinstance(plan, StoredPlan) else plan
    if workload.name != plan.workload.name:
        raise InvalidValue(f"the plan is for {plan.workload.name}, not for {workload.name}")
    live, small = apply(plan, devices), reduced(workload)
    on_cpu = all(device.platform == "cpu" for device in live.mesh.devices.flat)
    kind = "cpu" if on_cpu else "tpu"
    options = {name: value for name, value in live.compiler_options.items() if not (on_cpu and "xla_tpu" in name)}
    step = small.step(plan.candidate.layout, live.mesh, kernels=True)
    with jax.default_device(live.mesh.local_devices[0]):
        result = step.lower(kind).compile(compiler_options=options or None)(*arrays(step.arguments))
        found = Reference(kind).check(small, plan.candidate.layout, result, step)
    if found.wrong is not None:
        raise WrongResult(f"plan for {plan.workload.name} on {plan.slice.name}: {found.wrong.detail}")
    if found.difference is None:
        raise InvalidValue(f"{workload.name} cannot be verified: {found.unchecked}")
    return found.difference
