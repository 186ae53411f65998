"""Numbers, tables and grids for a terminal. Predictions are labelled wherever they are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tuner.placements.placement import Placement
from tuner.plans.plan import Plan
from tuner.slices.slice import Slice

Column = tuple[str, str]
"""A heading and ``<`` or ``>``: numbers go to the right."""


def ms(seconds: float | None) -> str:
    """Returns milliseconds with one decimal; a dash for what is not known."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def gib(count: float | None) -> str:
    """Returns GiB with two decimals; a dash for what is not known."""
    return "-" if count is None else f"{count / 2**30:.2f}"


def times(ratio: float | None) -> str:
    """Returns a speed-up; a dash for what is not known."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Returns a plain table: two spaces between columns, numbers to the right, no lines that a script must strip."""
    widths = [
        max(len(heading), *(len(row[i]) for row in rows)) if rows else len(heading)
        for i, (heading, _) in enumerate(columns)
    ]
    lines = [[heading for heading, _ in columns], *rows]
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, (_, side), width in zip(line, columns, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def document(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Prints strict JSON."""
    click.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def grid(slice_: Slice, placement: Placement, axes: Sequence[tuple[str, int]]) -> str:
    """Draws the slice, y downwards and x to the right, planes of 3-D slices apart.

    A cell names the position on every mesh axis that is longer than 1, in mesh order.
    """
    long = [(name, size) for name, size in axes if size > 1]
    cells: dict[tuple[int, ...], list[str]] = {}
    for position, device in enumerate(placement.devices):
        rest, coordinates = position, []
        for _, size in reversed(long):
            rest, coordinate = divmod(rest, size)
            coordinates.append(coordinate)
        cells.setdefault(slice_.coords(device), []).append(",".join(map(str, reversed(coordinates))) or "0")
    lines = [f"each chip: {', '.join(name for name, _ in long) or 'the only position'}"]
    x_size, y_size = slice_.shape[0], slice_.shape[1]
    width = max(len(" ".join(cell)) for cell in cells.values())
    for z in range(slice_.shape[2] if len(slice_.shape) == 3 else 1):
        if len(slice_.shape) == 3:
            lines.append(f"z={z}")
        for y in range(y_size):
            at = [(x, y, z)[: len(slice_.shape)] for x in range(x_size)]
            lines.append("  " + "  ".join(f"{' '.join(cells[c]):<{width}}" for c in at).rstrip())
    return "\n".join(lines)


def measured_lines(plan: Plan) -> list[str]:
    """Returns what a device took beside what was predicted."""
    found, lines = plan.measurement, []
    if plan.ratio is not None:
        lines.append(f"  predicted   {ms(plan.predicted_s)} ms; measured is {plan.ratio:.2f} of it")
    if found:
        first, third = found["quartiles_s"]
        steady = "steady" if found["steady"] else "not steady"
        samples = f"{len(found['samples_s'])} blocks of {found['steps']} steps"
        lines.append(f"  measured    quartiles {ms(first)} to {ms(third)} ms, {samples}, {steady}")
        lines.append(f"  on          {found['devices']} devices of kind {found['device_kind']}, {found['host']}")
    return lines


def plan_lines(plan: Plan) -> list[str]:
    """Returns what a person wants to know of a plan, a line each."""
    layout = plan.candidate.layout
    details = plan.details
    lines = [
        f"{plan.workload.name} on {plan.slice.name}",
        f"  step        {ms(plan.step_s)} ms ({plan.evidence}{', proved best of its space' if plan.proved else ''})",
    ]
    if plan.measured_s is not None:
        lines += measured_lines(plan)
    parts = [
        (name, details.get(key))
        for name, key in (
            ("compute", "compute_s"),
            ("attention", "attention_s"),
            ("exposed communication", "exposed_communication_s"),
        )
    ]
    known = [f"{name} {ms(value)} ms" for name, value in parts if value is not None]
    if known:
        lines.append(f"  of it       {', '.join(known)}")
    lines.append(f"  memory      {gib(plan.memory_bytes)} of {gib(plan.slice.generation.hbm_bytes)} GiB per device")
    lines.append(
        f"  mesh        {', '.join(f'{name}={size}' for name, size in layout.axes if size > 1) or 'one device'}"
    )
    lines.append(f"  options     {', '.join(f'{name}={value}' for name, value in layout.options) or 'none'}")
    flags = ", ".join(f"{name}={value}" for name, value in plan.candidate.compiler_options)
    lines.append(f"  compiler    {flags or 'default options'}")
    if plan.constraints.links:
        lines.append(f"  links       {', '.join(plan.constraints.links)} of the full rate")
    lines.append(f"  placement   {plan.placement.description or 'as listed'}")
    lines += [f"    {line}" for line in grid(plan.slice, plan.placement, layout.axes).splitlines()]
    for baseline in plan.baselines:
        what = {"A": "deployed today", "B": "fewest bytes received"}.get(baseline.name, baseline.name)
        if baseline.step_s is None:
            lines.append(f"  baseline {baseline.name}  does not run: {baseline.reason}")
        else:
            lines.append(
                f"  baseline {baseline.name}  {ms(baseline.step_s)} ms ({plan.evidence}; {what}, default order), "
                f"the plan is {times(plan.speedup(baseline.name))} as fast"
            )
    lines.append(f"  toolchain   {plan.toolchain}")
    return lines
