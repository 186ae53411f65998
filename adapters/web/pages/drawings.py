"""From what views read to the pictures on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from adapters.web.evaluation import parameters
from adapters.web.pictures import bars, coordinates, history, roofline, scatter, svg, timeline
from adapters.web.pictures.svg import Drawing
from storage.views.history import Coordinates, Mark, Pair
from storage.views.studies import StudyCounts
from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.program.program import Collective, Compute, Memory, Program
from tuner.rejections import Stage
from tuner.slices.slice import Slice
from tuner.stores import TrialState
from tuner.timeline.axes import spanned_axes
from tuner.timeline.compute import compute_seconds
from tuner.timeline.ranker import Ranker

_AFTER = {
    Stage.SCREEN: tuple(Stage),
    Stage.COMPILE: (Stage.COMPILE, Stage.PLACE, Stage.MEASURE),
    Stage.PLACE: (Stage.PLACE, Stage.MEASURE),
    Stage.MEASURE: (Stage.MEASURE,),
}


_DRAWABLE_S = (1e-12, 1e9)


def drawable(seconds: float | None) -> bool:
    """Returns whether a time has a place on paper beside others; what is infinite, none or absurd has not."""
    return seconds is not None and _DRAWABLE_S[0] <= seconds <= _DRAWABLE_S[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelRow:
    """One stage: what it looked at, and what it rejected.

    Attributes:
        stage: the stage.
        entered: layouts or candidates that it looked at.
        running: those that are in it now.
        reasons: (reason, how many, whether they are trials that one can look at), most first.
    """

    stage: Stage
    entered: int
    running: int
    reasons: tuple[tuple[str, int, bool], ...]

    @property
    def rejected(self) -> int:
        """All that it rejected."""
        return sum(count for _, count, _ in self.reasons)


def funnel_rows(counts: StudyCounts) -> list[FunnelRow]:
    """Returns the stages of a study's funnel. Layouts that wait for the compiler are stored nowhere, so in none."""
    refused = sum(layouts for _, layouts in counts.refusals)
    rows = [
        FunnelRow(
            stage=Stage.ENUMERATE,
            entered=refused + counts.trials,
            running=0,
            reasons=(
                *((reason, layouts, False) for reason, layouts in counts.refusals),
                *((reason, trials, True) for reason, trials in counts.rejected(Stage.ENUMERATE)),
            ),
        )
    ]
    for stage, later in _AFTER.items():
        entered = counts.reached(*later)
        if stage is Stage.SCREEN:
            entered -= counts.reached(Stage.ENUMERATE)
        if stage is Stage.MEASURE:
            entered = max(entered, sum(count.measured for count in counts.counts))
        running = sum(c.trials for c in counts.counts if c.stage is stage and c.state is TrialState.RUNNING)
        reasons = tuple((reason, trials, True) for reason, trials in counts.rejected(stage))
        rows.append(FunnelRow(stage=stage, entered=entered, running=running, reasons=reasons))
    return rows


def draw_funnel(rows: Sequence[FunnelRow]) -> Markup:
    """Draws the funnel."""
    stages = [
        bars.FunnelStage(
            name=row.stage.value,
            entered=row.entered,
            rejected=[(reason, count) for reason, count, _ in row.reasons],
            open=row.running,
        )
        for row in rows
    ]
    return shown(bars.funnel(stages), "picture-funnel")


def draw_history(marks: Sequence[Mark], begun: datetime, baselines: Sequence[tuple[str, float]]) -> Markup:
    """Draws the best so far, against compiles and against time."""
    marks = [mark for mark in marks if drawable(mark.predicted_s) or drawable(mark.measured_s)]
    baselines = [(name, seconds) for name, seconds in baselines if drawable(seconds)]
    if not marks:
        return Markup()

    def points(place: Callable[[Mark], float]) -> list[history.Point]:
        return [
            history.Point(
                x=place(mark),
                predicted_s=mark.predicted_s if drawable(mark.predicted_s) else None,
                measured_s=mark.measured_s if drawable(mark.measured_s) else None,
                name=f"trial {mark.number}",
            )
            for mark in marks
        ]

    begun = min(begun, marks[0].finished_at)  # hosts' clocks differ
    by_compiles = points(lambda mark: mark.compiles)
    by_time = points(lambda mark: max(0.0, (mark.finished_at - begun).total_seconds()))
    compiles = history.draw(history.History(points=by_compiles, against="compiles", baselines=baselines))
    time = history.draw(history.History(points=by_time, against="time", baselines=baselines))
    return shown(compiles, "picture-compiles") + shown(time, "picture-time")


def draw_scatter(pairs: Sequence[Pair], rank: float | None, relative_error: float | None) -> Markup:
    """Draws what was predicted against what was measured."""
    named = [
        (f"trial {pair.number}", pair.predicted_s, pair.measured_s)
        for pair in pairs
        if drawable(pair.predicted_s) and drawable(pair.measured_s)
    ]
    if not named:
        return Markup()
    return shown(
        scatter.draw(scatter.Agreement(pairs=named, relative_error=relative_error, rank=rank)), "picture-scatter"
    )


def draw_coordinates(trials: Sequence[Coordinates]) -> Markup:
    """Draws the parameters of trials."""
    strands = [
        coordinates.Strand(name=f"trial {t.number}", values=parameters(t.candidate), step_s=t.predicted_s)
        for t in trials
        if drawable(t.predicted_s)
    ]
    return shown(coordinates.draw(strands), "picture-coordinates") if len(strands) > 1 else Markup()


def draw_memory(memory: Memory | None, capacity_bytes: int, reserve_bytes: int) -> Markup:
    """Draws what a device holds at the peak."""
    return shown(
        bars.memory(
            bars.MemoryParts(
                parts=memory_parts(memory) or None, capacity_bytes=capacity_bytes, reserve_bytes=reserve_bytes
            )
        ),
        "picture-memory",
    )


def memory_parts(memory: Memory | None) -> list[tuple[str, int]]:
    """Returns (what, bytes) of what is resident at the peak; nothing if that is unknown."""
    if memory is None:
        return []
    return [
        ("arguments", memory.argument_bytes),
        ("outputs", memory.output_bytes - memory.alias_bytes),
        ("temporaries", memory.temp_bytes),
        ("code", memory.code_bytes),
    ]


def draw_step(
    program: Program,
    placement: Placement,
    slice_: Slice,
    layout: Layout,
    constants: Calibration,
    degraded: Sequence[Degraded],
) -> Mapping[str, Markup]:
    """Draws the timeline and the roofline of a compiled program in a placement."""
    ranker = Ranker(program, slice_, layout, constants, degraded)
    over = {
        node.name: f"{node.kind} over {'+'.join(spanned_axes(node, layout)) or '-'}"
        for node, _ in program.walk()
        if isinstance(node, Collective)
    }
    line = timeline.draw(timeline.Timeline(trace=ranker.trace(placement), over=over))
    work: dict[str, list[float]] = {}
    kinds: dict[str, str] = {}
    for node, times in program.walk():
        if not isinstance(node, Compute):
            continue
        flops = node.kernel.flops if node.kernel is not None else node.flops
        seconds = compute_seconds(node, slice_.generation, constants)
        if seconds <= 0:
            continue
        kinds[node.name] = "attention" if node.kernel is not None else node.kind.value
        sums = work.setdefault(node.name, [0.0, 0.0, 0.0])
        for at, value in enumerate((flops, node.bytes, seconds)):
            sums[at] += times * value
    generation = slice_.generation
    roof = roofline.draw(
        roofline.Roofline(
            work=[
                roofline.Work(name=name, kind=kinds[name], flops=flops, bytes=moved, seconds=seconds)
                for name, (flops, moved, seconds) in work.items()
            ],
            peak_flops=generation.peak_flops,
            hbm_bytes_per_s=generation.hbm_bytes_per_s,
        )
    )
    return {"timeline": shown(line, "picture-timeline"), "roofline": shown(roof, "picture-roofline")}


def shown(drawing: Drawing, key: str) -> Markup:
    """Returns a picture for a page, in a box of its own that scrolls where it is too narrow; `key` begins its ids."""
    picture = Markup(svg.document(drawing, key=key))
    if not drawing.live:
        return picture
    box = '<div class="scroll" tabindex="0" role="region" aria-label="{}">{}</div>'
    return Markup(box).format(svg.clean(drawing.title), picture)
