"""From the best trial of a study to the active plan of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.plans.plan import Baseline, Evidence, Plan, StoredPlan
from tuner.plans.promotion import Incumbent, judge
from tuner.ports import Compiled
from tuner.rejections import RejectReason
from tuner.search.cache import CachedCompiler
from tuner.search.ledger import utc_now
from tuner.search.measure import MeasuredOutcome
from tuner.search.measured import Timed
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
    measured: MeasuredOutcome | None = None,
) -> tuple[StoredPlan | None, bool]:
    """Makes a plan of the best trial and promotes it if the rule says so.

    Where something was measured, the plan is of what was fastest there, and rests on that. An active plan that turned
    out to compute something else is retired, whatever takes its place.

    Returns the active plan after that (None if nothing ran) and whether this call made it active.
    """
    active = store.active(key)
    incumbent = None if measured is None or measured.incumbent is None else _incumbent(measured.incumbent)
    fastest = None if measured is None else measured.best
    trial = best if fastest is None else fastest.trial
    plan, in_service = None, None if active is None else active.plan
    if trial is not None and trial.predicted_s is not None and trial.placement is not None:
        compiled, _ = compiler.compile(trial.candidate)
        if isinstance(compiled, Compiled):
            plan = _plan(key, trial, compiled, baselines, missing, fastest=fastest, proved=proved, measured=measured)
    verdict = None if plan is None else judge(plan, in_service, margin=margin, incumbent=incumbent)
    if plan is not None and verdict is not None and verdict.promote:
        return store.promote(plan, note=verdict.reason), True
    wrong = None if measured is None or measured.incumbent is None else measured.incumbent.trial.rejection
    if active is not None and wrong is not None and wrong.reason is RejectReason.WRONG_RESULT:
        store.retire(active.id, note=wrong.detail)
        return None, False
    return active, False


def _plan(
    key: StudyKey,
    trial: Trial,
    compiled: Compiled,
    baselines: Mapping[str, Trial],
    missing: Mapping[str, str],
    *,
    fastest: Timed | None,
    proved: bool,
    measured: MeasuredOutcome | None,
) -> Plan:
    memory = compiled.program.memory
    names = sorted({*baselines, *missing})
    if fastest is None or fastest.measured is None or measured is None:
        assert trial.predicted_s is not None
        figures: dict[str, Any] = {
            "evidence": Evidence.PREDICTED,
            "step_s": trial.predicted_s,
            "baselines": tuple(_baseline(name, baselines.get(name), missing) for name in names),
            "study": key.name,
        }
    else:
        figures = {
            "evidence": Evidence.MEASURED,
            "step_s": fastest.measured.median_s,
            "measurement": fastest.measured.to_json(),
            "baselines": tuple(
                _measured_baseline(name, measured.baseline(name), baselines.get(name), missing) for name in names
            ),
            "study": measured.study,
        }
    assert trial.placement is not None
    return Plan(
        workload=key.workload,
        slice=key.slice,
        toolchain=key.toolchain,
        constraints=key.constraints,
        candidate=trial.candidate,
        placement=trial.placement,
        arguments=compiled.arguments,
        memory_bytes=None if memory is None else memory.total_bytes,
        details=trial.details,
        # A proof is of the model's optimum; what is fastest on a device may be another.
        proved=proved and fastest is None,
        trial=trial.number,
        created_at=utc_now(),
        **figures,
    )


def _incumbent(timed: Timed) -> Incumbent:
    rejection = timed.trial.rejection
    return Incumbent(measured_s=timed.step_s, refused="" if rejection is None else rejection.detail)


def _measured_baseline(name: str, timed: Timed | None, trial: Trial | None, missing: Mapping[str, str]) -> Baseline:
    if timed is not None and timed.trial.measured_s is not None:
        # Also where it was stopped early: it is slower than that for certain, and the comparison stays within a kind.
        return Baseline(name=name, layout=str(timed.trial.candidate.layout), step_s=timed.trial.measured_s)
    if timed is not None and timed.trial.rejection is not None:
        reason = f"{timed.trial.rejection.reason}: {timed.trial.rejection.detail}"
        return Baseline(name=name, layout=str(timed.trial.candidate.layout), step_s=None, reason=reason)
    layout = "" if trial is None else str(trial.candidate.layout)
    return Baseline(name=name, layout=layout, step_s=None, reason=missing.get(name, "it was not measured"))


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
