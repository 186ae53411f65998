"""What production observed of a plan: evidence of its own kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tuner.errors import InvalidValue
from tuner.measurements import Measurement, Source
from tuner.plans.plan import Plan, StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.stores import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A step time from outside.

    Attributes:
        step_s: seconds of one step.
        samples: steps that it rests on.
        device_kind: what JAX calls the devices; empty for the plan's own.
        toolchain: that the deployment runs; None for the plan's.
        host: that observed it.
        note: anything else.
        observed_at: aware; None for now.
    """

    step_s: float
    samples: int = 1
    device_kind: str = ""
    toolchain: Toolchain | None = None
    host: str = ""
    note: str = ""
    observed_at: datetime | None = None


def report(store: Store, plan_id: int, observed: Report) -> Measurement:
    """Stores a step time that production observed of a plan. It is shown beside the prediction and fitted to, and never
    by itself promotes or retires anything.

    Raises PlanNotFound, and InvalidValue if the time is none or the devices are not those of the plan's slice.
    """
    plan = store.plan(plan_id).plan
    return store.save_measurement(
        Measurement(
            source=Source.PRODUCTION,
            workload=plan.workload,
            slice=plan.slice,
            toolchain=observed.toolchain or plan.toolchain,
            candidate=plan.candidate,
            placement=plan.placement,
            device_kind=_device_kind(plan, observed.device_kind),
            step_s=observed.step_s,
            predicted_s=plan.predicted_s,
            count=observed.samples,
            host=observed.host,
            plan_id=plan_id,
            details={"note": observed.note} if observed.note else {},
            observed_at=observed.observed_at,
        )
    )


def reports(store: Store, stored: StoredPlan) -> list[Measurement]:
    """Returns what production observed of a plan, newest first."""
    return list(store.measurements(source=Source.PRODUCTION, plan_id=stored.id))


def _device_kind(plan: Plan, given: str) -> str:
    kinds = plan.slice.generation.device_kinds
    if not given:
        return kinds[0]
    if given not in kinds:
        raise InvalidValue(
            f"a plan for {plan.slice.name} does not run on {given!r}; its devices are {', '.join(kinds)}"
        )
    return given
