"""From the best trial of a study to the active plan of its key."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.plans.plan import Baseline, Evidence, Plan, StoredPlan
from tuner.plans.promotion import judge
from tuner.ports import Compiled
from tuner.search.cache import CachedCompiler
from tuner.search.ledger import utc_now
from tuner.stores import PlanStore, StudyKey, Trial


def promote_best(
    *,
    store: PlanStore,
    compiler: CachedCompiler,
    key: StudyKey,
    best: Trial | None,
    baselines: Mapping[str, Trial],
    missing: Mapping[str, str],
    proved: bool,
    margin: float,
) -> tuple[StoredPlan | None, bool]:
    """Makes a plan of the best trial and promotes it if the rule says so.

    Returns the active plan after that (None if nothing ran) and whether this call made it active.
    """
    active = store.active(key)
    if best is None or best.predicted_s is None or best.placement is None:
        return active, False
    compiled, _ = compiler.compile(best.candidate)
    if not isinstance(compiled, Compiled):
        return active, False
    memory = compiled.program.memory
    plan = Plan(
        workload=key.workload,
        slice=key.slice,
        toolchain=key.toolchain,
        constraints=key.constraints,
        candidate=best.candidate,
        placement=best.placement,
        arguments=compiled.arguments,
        evidence=Evidence.PREDICTED,
        step_s=best.predicted_s,
        memory_bytes=None if memory is None else memory.total_bytes,
        details=best.details,
        baselines=tuple(_baseline(name, baselines.get(name), missing) for name in sorted({*baselines, *missing})),
        proved=proved,
        study=key.name,
        trial=best.number,
        created_at=utc_now(),
    )
    verdict = judge(plan, None if active is None else active.plan, margin=margin)
    if not verdict.promote:
        return active, False
    return store.promote(plan, note=verdict.reason), True


def _baseline(name: str, trial: Trial | None, missing: Mapping[str, str]) -> Baseline:
    if trial is None:
        return Baseline(name=name, layout="", step_s=None, reason=missing.get(name, ""))
    default_s = trial.numbers.get("default_step_s")
    return Baseline(
        name=name,
        layout=str(trial.candidate.layout),
        step_s=default_s,
        best_placement_step_s=trial.predicted_s,
        reason="JAX's default order has no routes, or makes another program" if default_s is None else "",
    )
