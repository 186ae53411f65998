"""Small plans for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tuner.layouts.layout import Candidate, Layout
from tuner.placements.placement import Placement
from tuner.plans.plan import Baseline, Constraints, Evidence, Plan, PlanState, StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import ArgumentSharding
from tuner.slices.slice import Slice

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TOOLCHAIN = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")
V5E_2X4 = Slice(generation_name="v5e", shape=(2, 4), wrap=(False, False))


def make_plan(**changes: Any) -> Plan:
    """Returns a plan for Wan 2.1 on v5e-2x4 with some fields changed."""
    slice_ = changes.get("slice", V5E_2X4)
    devices = slice_.num_devices
    fields: dict[str, Any] = {
        "workload": WorkloadKey(model="wan", shape="832x480x81", identity=(("revision", "1"),)),
        "slice": slice_,
        "toolchain": TOOLCHAIN,
        "constraints": Constraints(),
        "candidate": Candidate(
            layout=Layout.of({"cfg": 2, "ulysses": devices // 2}, {"weights": "replicated"}),
            compiler_options=(("xla_tpu_enable_async_all_to_all", "true"),),
        ),
        "placement": Placement(devices=tuple(reversed(range(devices))), description="halves"),
        "arguments": (
            ArgumentSharding(path="x", shape=(2, 16), dtype="bfloat16", spec=(("cfg",), ())),
            ArgumentSharding(path="t", shape=(), dtype="float32", spec=()),
        ),
        "evidence": Evidence.PREDICTED,
        "step_s": 0.5,
        "memory_bytes": 3 << 30,
        "details": {"compute_s": 0.2},
        "baselines": (Baseline(name="A", layout="cfg=2", step_s=0.6, best_placement_step_s=0.55),),
        "study": "study",
        "trial": 3,
        "created_at": NOW,
    }
    return Plan(**(fields | changes))


def stored(plan: Plan, *, id_: int = 1, version: int = 1) -> StoredPlan:
    """Returns a plan as an active stored version."""
    return StoredPlan(plan=plan, id=id_, version=version, state=PlanState.ACTIVE, stored_at=NOW)
