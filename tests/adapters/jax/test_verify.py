"""Case 57: a plan that another compiler made is verified before it is used."""

from __future__ import annotations

import jax
import pytest

from adapters.jax.arguments import argument_shardings
from adapters.jax.topologies import auto_mesh
from adapters.jax.verify import WrongResult, verify
from adapters.jax.workload import FunctionWorkload
from tests.adapters.jax.runnable import computes_something_else, fine, needs_too_much
from tests.tuner.plans.samples import make_plan
from tuner.errors import InvalidValue
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.plans.plan import Plan
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.slices.names import parse_slice

OLD = Toolchain(jax="0.1", jaxlib="0.1", libtpu="0.1")


def stale_plan(workload: FunctionWorkload, devices: int = 4) -> Plan:
    layout = Layout.of({"data": devices, "other": 1})
    step = workload.step(layout, auto_mesh(jax.devices()[:devices], layout), kernels=True)
    return make_plan(
        workload=WorkloadKey.of(workload.name, workload.identity),
        slice=parse_slice(f"cpu-{devices}"),
        toolchain=OLD,
        candidate=Candidate(layout=layout),
        placement=Placement(devices=tuple(reversed(range(devices)))),
        arguments=argument_shardings(step),
    )


def test_a_stale_plan_that_computes_the_right_thing_passes() -> None:
    assert verify(stale_plan(fine), fine, jax.devices()[:4]) < 2e-3


def test_one_that_computes_something_else_is_refused() -> None:
    plan = stale_plan(computes_something_else)
    with pytest.raises(WrongResult, match=r"differs from the unsharded step's by 0\.0"):
        verify(plan, computes_something_else, jax.devices()[:4])


def test_a_plan_of_another_workload_is_not_verified_by_this_one() -> None:
    with pytest.raises(InvalidValue, match="the plan is for right, not for too_much"):
        verify(stale_plan(fine), needs_too_much, jax.devices()[:4])
