"""`meshwright explain`: why a plan won, and where its time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

import storage
from adapters.cli import chosen, links, options, render
from tuner.errors import InvalidValue
from tuner.plans.plan import Plan
from tuner.stores import Store, Trial
from tuner.timeline.prediction import Prediction

_COLLECTIVES = 8


@click.command()
@chosen.plan
@options.database
def command(db: str | None, **named: Any) -> None:
    """Say why PLAN won and where its time goes. PLAN is a plan's id, or a model with --shape and --slice."""
    with storage.open_store(db) as store:
        stored = chosen.find(store, **named)
        trials = _study_trials(store, stored.plan)
    click.echo("\n".join(render.plan_lines(stored.plan)))
    plan = stored.plan
    for section in (_time(plan), _links(plan), _gain(plan), _rivals(plan, trials), _rejections(trials)):
        if section:
            click.echo("\n" + section)


def _study_trials(store: Store, plan: Plan) -> Sequence[Trial]:
    for study in store.studies():
        if study.key.name == plan.study:
            return store.trials(study.id)
    return ()


def _time(plan: Plan) -> str:
    if not plan.details:
        raise InvalidValue("the plan holds no timeline")
    prediction = Prediction.from_json(plan.details)
    share, bound = 100 / prediction.step_s, render.ms(prediction.communication_bound_s)
    parts = [
        ("matrix products", prediction.matmul_s),
        ("memory-bound operations", prediction.memory_s),
        ("layout changes", prediction.copy_s),
        ("attention", prediction.attention_s),
        ("other kernels", prediction.kernel_s),
        ("exposed communication", prediction.exposed_communication_s),
    ]
    rows = [[name, render.ms(seconds), f"{seconds * share:.0f}%"] for name, seconds in parts if seconds > 0]
    lines = [
        f"Where the {render.ms(prediction.step_s)} ms go ({plan.evidence})",
        render.table([("part", "<"), ("ms", ">"), ("share", ">")], rows),
        "",
        f"Limits: compute at the peak alone {render.ms(prediction.peak_compute_s)} ms; communication "
        f"{render.ms(prediction.communication_s)} ms, of which any placement needs "
        f"{bound} ms. A device receives {prediction.received_bytes / 1e9:.2f} GB.",
        f"Links: {prediction.idle_links} of {prediction.links} idle"
        + (
            f"; the busiest, {prediction.busiest_link}, works {render.ms(prediction.busiest_link_s)} ms of the step."
            if prediction.busiest_link
            else "."
        ),
    ]
    if prediction.unknown_kernels:
        lines.append(f"Guessed, for want of a table: {', '.join(prediction.unknown_kernels)}.")
    if prediction.collectives:
        columns = [
            ("collective", "<"),
            ("over", "<"),
            ("times", ">"),
            ("MB", ">"),
            ("alone us", ">"),
            ("at least us", ">"),
            ("exposed ms", ">"),
            ("busiest link", "<"),
        ]
        rows = [
            [
                collective.kind.value,
                collective.axis_label,
                str(collective.times),
                f"{collective.operand_bytes / 1e6:.2f}",
                f"{collective.alone_s * 1e6:.0f}",
                f"{collective.bound_s * 1e6:.0f}",
                render.ms(collective.exposed_s),
                collective.busiest_link,
            ]
            for collective in prediction.collectives[:_COLLECTIVES]
        ]
        lines += ["", render.table(columns, rows)]
        left = len(prediction.collectives) - _COLLECTIVES
        if left > 0:
            lines.append(f"and {left} more that the step waits less for")
    return "\n".join(lines)


def _links(plan: Plan) -> str:
    return links.traffic(plan.slice, Prediction.from_json(plan.details))


def _gain(plan: Plan) -> str:
    lines = []
    for baseline in plan.baselines:
        if baseline.step_s is None or baseline.best_placement_step_s is None:
            continue
        placement = render.times(baseline.step_s / baseline.best_placement_step_s)
        lines.append(
            f"Against baseline {baseline.name} ({baseline.layout}): {render.times(baseline.step_s / plan.step_s)}, of "
            f"which placement of its own layout gives {placement} and "
            f"the layout {render.times(baseline.best_placement_step_s / plan.step_s)}."
        )
    return "\n".join(lines)


def _rivals(plan: Plan, trials: Sequence[Trial]) -> str:
    winner = next((trial for trial in trials if trial.number == plan.trial), None)
    others = sorted(
        (trial for trial in trials if trial.predicted_s is not None and trial.number != plan.trial),
        key=lambda trial: (trial.predicted_s or 0.0, trial.number),
    )
    if winner is None or not others:
        return ""
    columns = [("runner-up", "<"), ("ms", ">"), ("compute", ">"), ("attention", ">"), ("exposed", ">")]
    rows = [
        [str(trial.candidate.layout), _more(trial.predicted_s, winner.predicted_s)]
        + [_more(trial.numbers.get(key), winner.numbers.get(key)) for key in ("compute_s", "attention_s", "exposed_s")]
        for trial in others[:5]
    ]
    return "What the others lose, in ms more than the plan (predicted)\n" + render.table(columns, rows)


def _more(theirs: float | None, ours: float | None) -> str:
    return "-" if theirs is None or ours is None else f"{(theirs - ours) * 1e3:+.1f}"


def _rejections(trials: Sequence[Trial]) -> str:
    reasons = Counter(f"{t.rejection.stage}: {t.rejection.reason}" for t in trials if t.rejection is not None)
    if not reasons:
        return ""
    rows = [[reason, str(count)] for reason, count in reasons.most_common()]
    return "Rejected\n" + render.table([("stage and reason", "<"), ("trials", ">")], rows)
