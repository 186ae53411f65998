"""A plan beside a person's own layout and placement: the other half of `meshwright compare`."""

from __future__ import annotations

from typing import Any

from adapters.cli import chosen, render
from tuner.calibration.records import constants
from tuner.explain.choice import Choice, parse_choice
from tuner.explain.comparison import Comparison, Side, Where, ordered, place, refused
from tuner.layouts.layout import Candidate
from tuner.network.cost import Degraded
from tuner.network.reach import is_limited
from tuner.plans.plan import Plan, StoredPlan
from tuner.plans.programs import program_of_trial, study_trials
from tuner.ports import Compiled
from tuner.rejections import Rejection
from tuner.stores import Store


def compare(
    store: Store,
    stored: StoredPlan,
    *,
    layout: str | None,
    where: str,
    links: tuple[Degraded, ...],
    workload: str,
    timeout_s: float,
) -> Comparison:
    """Sets a plan beside a choice.

    Args:
        store: with the plan's study and programs; a choice that is not there is compiled into it.
        stored: the plan.
        layout: the choice as text; None for the plan's own layout.
        where: one of `Where`, or device indices.
        links: that are slow or missing.
        workload: ``package.module:attribute``, to compile for a workload of one's own.
        timeout_s: time for the compile.

    Raises PlanNotFound without the plan's program, and what `adapters.choice.compile_choice` raises.
    """
    plan = stored.plan
    program = chosen.compiled(store, plan)
    given: dict[str, Any] = {
        "slice_": plan.slice,
        "calibration": constants(store, plan.slice.generation_name, plan.toolchain),
        "links": links,
        "jax": plan.toolchain.jax_release,
        "plans": plan.placement,
    }
    plans = place(f"plan {stored.id}", plan.candidate, program.program, Where.PLAN, **given)
    name, candidate, found = "its layout there", plan.candidate, program
    outcome: Compiled | Rejection = found
    if layout is not None:
        choice = parse_choice(layout, plan.candidate.layout)
        name, candidate, outcome = _found(store, plan, choice, where, workload, timeout_s)
    if isinstance(outcome, Rejection):
        own = refused(name, candidate, outcome)
    else:
        own = place(name, candidate, outcome.program, where, **given)
    return Comparison(slice=plan.slice, plan=plans, own=own)


def _found(
    store: Store, plan: Plan, choice: Choice, where: str, workload: str, timeout_s: float
) -> tuple[str, Candidate, Compiled | Rejection]:
    """Returns the name, the candidate and the program of a choice: of the plan's study, else compiled."""
    trials = study_trials(store, plan)
    if is_limited(plan.slice) and where in (Where.DEFAULT, Where.ROW_MAJOR):
        # The program depends on the placement: only one that was compiled under this very one will do.
        trials = [trial for trial in trials if _is_under(trial.candidate, where, plan)]
    trial = choice.best(trials)
    if trial is not None:
        outcome = program_of_trial(store, trial, plan.slice, plan.toolchain) or trial.rejection
        if outcome is not None:
            return f"trial {trial.number}", trial.candidate, outcome
    from adapters.choice import compile_choice

    candidate, compiled = compile_choice(store, plan, choice, where=where, workload=workload, timeout_s=timeout_s)
    return "your choice", candidate, compiled


def _is_under(candidate: Candidate, where: str, plan: Plan) -> bool:
    wanted = ordered(where, plan.slice, candidate.layout, jax=plan.toolchain.jax_release)
    return candidate.placement is None or candidate.placement.devices == wanted.devices


def lines(comparison: Comparison) -> str:
    """Returns a comparison for a terminal."""
    plan, own = comparison.plan, comparison.own
    loss_s = None
    if plan.prediction is not None and own.prediction is not None:
        loss_s = own.prediction.step_s - plan.prediction.step_s
    rows = [["step ms", _step(plan), _step(own), _signed(loss_s)]]
    rows += [
        [f"  {part.name}", render.ms(part.ours_s), render.ms(part.theirs_s), _signed(part.loss_s)]
        for part in comparison.parts
    ]
    rows.append(["busiest link ms", _busiest(plan), _busiest(own), ""])
    rows.append(["memory GiB", render.gib(plan.memory_bytes), render.gib(own.memory_bytes), ""])
    out = [render.table([("", "<"), (plan.name, ">"), (own.name, ">"), ("loses", ">")], rows)]
    for side in (plan, own):
        flags = "".join(f" {name}={value}" for name, value in side.candidate.compiler_options)
        out.append(f"{side.name}: {side.candidate.layout}{flags}")
        if side.placement is not None:
            out.append(f"  {side.placement.description or 'as listed'}")
        if side.reason:
            out.append(f"  does not run: {side.reason}")
    if comparison.speedup is not None:
        out.append(f"The plan is {render.times(comparison.speedup)} as fast.")
    return "\n".join(out)


def _step(side: Side) -> str:
    return render.ms(None if side.prediction is None else side.prediction.step_s)


def _busiest(side: Side) -> str:
    return render.ms(None if side.prediction is None else side.prediction.busiest_link_s)


def _signed(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:+.1f}"
