"""`meshwright explain`: why a plan won, and where its time goes."""

from __future__ import annotations

from typing import Any

import click

import storage
from adapters.cli import chosen, links, options, render
from tuner.errors import InvalidValue
from tuner.explain.explanation import Explanation, Rival, explain
from tuner.explain.families import Family
from tuner.explain.limits import Limits
from tuner.measurements import Measurement
from tuner.plans.plan import Plan
from tuner.production import reports
from tuner.timeline.prediction import Prediction

_COLLECTIVES = 8
_REPORTS = 3


@click.command()
@chosen.plan
@options.database
@options.output_format
def command(db: str | None, output: str, **named: Any) -> None:
    """Say why PLAN won and where its time goes. PLAN is a plan's id, or a model with --shape and --slice."""
    with storage.open_store(db) as store:
        explained = explain(store, chosen.find(store, **named))
        observed = reports(store, explained.plan)
    plan = explained.plan.plan
    if output == "json":
        figures = {"predicted_s": plan.predicted_s, "measured_s": plan.measured_s, "ratio": plan.ratio}
        render.document(explained.to_json() | figures | {"production": [_report(each) for each in observed]})
        return
    click.echo("\n".join([*render.plan_lines(plan), *map(_production, observed[:_REPORTS])]))
    sections = (_time(plan), _limits(explained.limits), _links(plan), _gain(plan), _rivals(explained))
    for section in (*sections, _families(explained)):
        if section:
            click.echo("\n" + section)


def _report(observed: Measurement) -> dict[str, Any]:
    return {
        "step_s": observed.step_s,
        "predicted_s": observed.predicted_s,
        "ratio": observed.ratio,
        "samples": observed.count,
        "device_kind": observed.device_kind,
        "host": observed.host,
        "toolchain": observed.toolchain.to_json(),
        "observed_at": None if observed.observed_at is None else observed.observed_at.isoformat(),
    }


def _production(observed: Measurement) -> str:
    ratio = "" if observed.ratio is None else f", {observed.ratio:.2f} of the prediction"
    when = "" if observed.observed_at is None else f", {observed.observed_at:%Y-%m-%d}"
    return f"  production  {render.ms(observed.step_s)} ms over {observed.count} steps{ratio}{when}"


def _time(plan: Plan) -> str:
    if not plan.details:
        raise InvalidValue("the plan holds no timeline")
    prediction = Prediction.from_json(plan.details)
    share = 100 / prediction.step_s
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
        f"Where the {render.ms(prediction.step_s)} ms go (predicted)",
        render.table([("part", "<"), ("ms", ">"), ("share", ">")], rows),
        "",
        f"A device receives {prediction.received_bytes / 1e9:.2f} GB.",
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


def _limits(limits: Limits | None) -> str:
    if limits is None:
        return ""
    whats = {
        "compute": "every operation at the peak, and nothing else",
        "memory": "every byte of its operations at the documented HBM bandwidth, and nothing else",
        "network": "every collective at what any placement needs, and nothing else",
    }
    rows = [
        [f"{name} only", render.ms(seconds), f"{multiple:.2f}x", whats[name]]
        for name, seconds, multiple in limits.distances
    ]
    lines = [
        f"How far its {render.ms(limits.step_s)} ms are from the limits of its program",
        render.table([("limit", "<"), ("ms", ">"), ("step is", ">"), ("what", "<")], rows),
    ]
    if limits.network_s:
        lines.append(f"In its placement the collectives take {render.ms(limits.placed_s)} ms, one after another.")
    return "\n".join(lines)


def _rivals(explained: Explanation) -> str:
    if not explained.rivals:
        return ""
    plan = explained.plan.plan
    first = explained.rivals[0]
    columns = [("part", "<"), ("plan ms", ">"), ("runner-up ms", ">"), ("loses", ">")]
    rows = [
        [part.name, render.ms(part.ours_s), render.ms(part.theirs_s), _signed(part.loss_s)]
        for part in first.parts
        if part.loss_s is not None
    ]
    lines = [
        f"The runner-up, trial {first.trial}, loses {_signed(first.loss_s)} ms ({plan.evidence}): {_choice(first)}",
        *([f"placement: {first.placement}"] if first.placement else []),
        *([render.table(columns, rows)] if rows else []),
        "",
        f"What the others lose, in ms more than the plan ({plan.evidence}; parts are predicted)",
    ]
    columns = [("trial", ">"), ("ms", ">"), ("most of it", "<"), ("layout", "<")]
    rows = [[str(r.trial), _signed(r.loss_s), _most(r), _choice(r)] for r in explained.rivals]
    return "\n".join([*lines, render.table(columns, rows)])


def _choice(rival: Rival) -> str:
    flags = "".join(f" {name}={value}" for name, value in rival.flags)
    return f"{rival.layout}{flags}" + (f" (baseline {rival.baseline})" if rival.baseline else "")


def _most(rival: Rival) -> str:
    """Returns the parts that a rival loses and wins most by."""
    told = sorted(rival.parts, key=lambda part: -abs(part.loss_s or 0.0))[:2]
    return ", ".join(f"{_signed(part.loss_s)} {part.name}" for part in told if part.loss_s) or "-"


def _families(explained: Explanation) -> str:
    if not explained.searched:
        return "The study that it came from is not in this database: what was tried and rejected is not known."
    columns = [("splits", "<"), ("looked at", ">"), ("placed", ">"), ("best", ">"), ("what became of the others", "<")]
    limits = explained.limits
    predicted_s = explained.plan.plan.step_s if limits is None else limits.step_s  # families are predicted
    rows = [row for family in explained.families for row in _family(family, predicted_s)]
    lines = ["What became of each family of layouts, by the mesh axes that it splits", render.table(columns, rows)]
    if explained.refused:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(explained.refused.items()))
        lines.append(f"Refused before they were looked at: {counts}.")
    proof = "shown to be slower" if explained.proved else "not shown to be slower: the proof is open"
    lines.append(f"What was not placed and not rejected was {proof}.")
    return "\n".join(lines)


def _family(family: Family, predicted_s: float) -> list[list[str]]:
    """Returns a row for each ground of a family; the first also says what its best layout reached."""
    best = "-" if family.best_s is None else _signed(family.best_s - predicted_s)
    head = [family.name, str(family.trials), str(family.placed), best]
    grounds = [f"{g.trials} {g.reason}; the nearest, {g.nearest}: {g.detail}" for g in family.grounds]
    return [[*(head if index == 0 else [""] * 4), ground] for index, ground in enumerate(grounds or [""])]


def _signed(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:+.1f}"
