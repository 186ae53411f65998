"""Charts: right, whole at any size of study, and honest about what is missing."""

import math
import random

import pytest

from adapters.web.pictures import bars, coordinates, history, roofline, scatter, svg, timeline
from adapters.web.pictures.axes import Scale
from tests.adapters.web.pictures.readers import read, said, texts
from tests.adapters.web.pictures.test_slices import HOSTILE, V5E
from tuner.placements.default import row_major
from tuner.program.program import Collective, CollectiveKind
from tuner.timeline.trace import Span, Trace

UNKNOWN = (None, math.nan, math.inf, -math.inf)
PAIRS = ((0, 1), (1, 0))
SENT = Collective(
    name="cp", kind=CollectiveKind.COLLECTIVE_PERMUTE, operand_bytes=1 << 20, result_bytes=1 << 20, pairs=PAIRS
)


def points(count, measured=False):
    values = random.Random(0)
    return [
        history.Point(x=float(n), predicted_s=s, measured_s=s if measured else None, name=f"trial {n}")
        for n, s in ((n, values.uniform(0.4, 0.9)) for n in range(1, count + 1))
    ]


def test_history_draws_the_best_so_far_as_steps():
    three = [history.Point(x=x, predicted_s=s, name=f"trial {x}") for x, s in ((1, 0.5), (2, 0.9), (3, 0.4))]
    root = read(history.draw(history.History(points=three)))
    assert said(root) == ["trial 1: 500.0 ms predicted", "trial 2: 900.0 ms predicted", "trial 3: 400.0 ms predicted"]
    (best,) = [e for e in root.iter("path") if e.get("class") == "best" and "V" in e.get("d")]
    assert best.get("d").count("V") == 1  # 900 ms was no improvement


def test_predictions_are_hollow_and_measurements_filled():
    root = read(history.draw(history.History(points=points(3, measured=True))))
    classes = [e.get("class") for e in root.iter("circle") if "mark" in e.get("class")]
    assert classes == ["mark predicted"] * 3 + ["mark measured"] * 3


@pytest.mark.parametrize("against", ["time", "compiles"])
def test_20000_trials_are_one_picture(against):
    drawing = history.draw(history.History(points=points(20_000), against=against))
    assert len(svg.document(drawing)) < 50_000
    counted = sum(int(text.split()[0]) for text in said(read(drawing)))
    assert counted == 20_000


def test_history_without_numbers_says_so():
    nothing = [history.Point(x=1.0, predicted_s=value) for value in UNKNOWN]
    for trials in ([], nothing):
        assert "No trial has a step time yet." in texts(read(history.draw(history.History(points=trials))))


@pytest.mark.parametrize(("latest", "unit"), [(30.0, "seconds"), (600.0, "minutes"), (9000.0, "hours"), (9e5, "days")])
def test_time_has_a_fitting_unit(latest, unit):
    two = [history.Point(x=x, predicted_s=0.5) for x in (1.0, latest)]
    assert f"time of the search, {unit}" in texts(read(history.draw(history.History(points=two, against="time"))))


def test_scatter_shows_pairs_the_rank_and_the_error():
    agreement = scatter.Agreement(
        pairs=[("trial 1", 0.5, 0.5), ("trial 2", 0.6, 0.5), ("bad", math.nan, 1.0)], relative_error=0.1, rank=0.5
    )
    drawing = scatter.draw(agreement)
    root = read(drawing)
    assert [text for text in said(root) if "trial" in text] == [
        "trial 1: 500.0 ms predicted, 500.0 ms measured",
        "trial 2: 600.0 ms predicted, 500.0 ms measured",
    ]
    assert "2 trials, rank agreement 0.50" in texts(root)
    assert "off by 20 %" in drawing.description


def test_scatter_of_20000_is_binned_and_of_none_says_so():
    pairs = [("t", s, s * 1.05) for s in (point.predicted_s for point in points(20_000))]
    drawing = scatter.draw(scatter.Agreement(pairs=pairs))
    assert len(svg.document(drawing)) < 60_000
    assert sum(int(text.split()[0]) for text in said(read(drawing))) == 20_000
    assert "Nothing was measured" in texts(read(scatter.draw(scatter.Agreement(pairs=[]))))[0]


def test_the_funnel_counts_add_up():
    stage = bars.FunnelStage(name="screen", entered=79, rejected=[("hbm", 20), ("bound", 30)], open=5)
    assert stage.passed == 24
    root = read(bars.funnel([stage, bars.FunnelStage(name="measure", entered=0)]))
    assert said(root) == ["screen: 24 let through", "screen: 5 open", "screen: 20 hbm", "screen: 30 bound"]
    assert "nothing" in texts(root)
    assert "Nothing was looked at." in bars.funnel([]).description


def test_importance_is_sorted_and_leaves_out_what_is_no_number():
    root = read(bars.importance([("ring", 0.2), ("cfg", 0.7), ("none", math.nan)]))
    assert said(root) == ["cfg: 70 %", "ring: 20 %"]
    assert "Too few" in texts(read(bars.importance([])))[0]


def test_memory_is_by_part_and_unknown_is_not_zero():
    held = bars.MemoryParts(
        parts=[("arguments", 3 << 30), ("code", 1 << 20)], capacity_bytes=4 << 30, reserve_bytes=2 << 30
    )
    root = read(bars.memory(held))
    assert said(root) == ["arguments: 3.00 GiB", "code: 1.0 MiB", "kept free for others: 2.00 GiB"]
    assert "3.00 GiB held, 150 %" in texts(root)
    unknown = texts(read(bars.memory(bars.MemoryParts(parts=None, capacity_bytes=4 << 30))))
    assert "not known: the compiler did not say" in unknown


def test_coordinates_draw_a_strand_for_each_trial_and_name_the_fastest():
    strands = [
        coordinates.Strand(name="trial 1", values={"cfg": 2, "weights": "ring", "same": 1}, step_s=0.5),
        coordinates.Strand(name="trial 2", values={"cfg": 1, "same": 1}, step_s=0.4),
    ]
    drawing = coordinates.draw(strands)
    root = read(drawing)
    assert said(root) == ["trial 1: 500.0 ms", "trial 2: 400.0 ms"]
    assert "same" not in texts(root)
    assert "The fastest, trial 2 with 400.0 ms, has cfg 1, weights none." in drawing.description


def test_coordinates_of_20000_trials_stay_small():
    values = random.Random(0)
    strands = [
        coordinates.Strand(
            name=f"trial {n}",
            values={f"p{k}": values.choice([1, 2, 4, 8]) for k in range(20)} | {"text": str(values.randrange(500))},
            step_s=values.uniform(0.4, 0.9),
        )
        for n in range(20_000)
    ]
    assert len(svg.document(coordinates.draw(strands))) < 110_000
    assert "Too few" in texts(read(coordinates.draw(strands[:1])))[0]


def test_the_roofline_puts_operations_under_their_roof():
    work = [
        roofline.Work(name="dot", kind="matmul", flops=1e12, bytes=1e9, seconds=0.01),
        roofline.Work(name="kept", kind="matmul", flops=1e10, bytes=0.0, seconds=0.001),
        roofline.Work(name="add", kind="memory", flops=0.0, bytes=1e9, seconds=0.002),
    ]
    root = read(roofline.draw(roofline.Roofline(work=work, peak_flops=2e14, hbm_bytes_per_s=8e11)))
    assert said(root) == [
        "kept (matmul): 1.0 ms, 7.7 % of compute; 5.0 % of its roof",
        "dot (matmul): 10.0 ms, 77 % of compute; 50 % of its roof",
    ]
    assert "without products, only bytes: 2.0 ms" in texts(root)
    read(roofline.draw(roofline.Roofline(work=[], peak_flops=2e14, hbm_bytes_per_s=8e11)))


def test_the_timeline_unfolds_the_longest_loop_and_tells_waiting_from_overlap():
    body = Trace(
        name="layers",
        seconds=2.0,
        trips=3,
        spans=(
            Span(kind="collective-permute", name="cp", start_s=0.0, end_s=1.5, collective=SENT, exposed_s=0.5),
            Span(kind="matmul", name="dot", start_s=0.0, end_s=1.0, operations=2),
        ),
    )
    loop = Span(kind="loop", name="layers", start_s=1.0, end_s=7.0, body=body)
    step = Trace(name="step", seconds=7.0, spans=(Span(kind="memory", name="add", start_s=0.0, end_s=1.0), loop))
    drawing = timeline.draw(timeline.Timeline(trace=step, over={"cp": "collective-permute over ring"}))
    root = read(drawing)
    assert "one of 3 trips of layers: 2000.0 ms" in texts(root)
    assert "matmul, 2 operations, the longest dot: 1000.0 ms, from 0.0 ms" in said(root)
    (sent,) = [text for text in said(root) if "collective-permute" in text]
    assert sent.endswith("1.0 MiB a device; the step waits 500.0 ms for it")
    assert {"talk", "hidden"} <= {e.get("class") for e in root.iter("rect")}
    assert "matmul 3000.0 ms, memory 1000.0 ms" in drawing.description
    assert "waits for collective-permute over ring 1500.0 ms" in drawing.description


def test_a_timeline_of_many_operations_stays_small():
    spans = tuple(
        Span(kind=("matmul", "memory")[n % 2], name=f"op{n}", start_s=float(n), end_s=n + 1.0) for n in range(50_000)
    )
    drawing = timeline.draw(timeline.Timeline(trace=Trace(name="step", seconds=50_000.0, spans=spans)))
    assert len(svg.document(drawing)) < 150_000
    read(drawing)


def test_a_real_trace_can_be_drawn():
    trace = V5E.ranker.trace(row_major(V5E.slice_))
    assert "the step waits" in " ".join(said(read(timeline.draw(timeline.Timeline(trace=trace)))))


def test_hostile_names_stay_text():
    pictures = [
        history.draw(
            history.History(points=[history.Point(x=1, predicted_s=1, name=HOSTILE)], baselines=[(HOSTILE, 1)])
        ),
        scatter.draw(scatter.Agreement(pairs=[(HOSTILE, 1.0, 1.0)])),
        bars.funnel([bars.FunnelStage(name=HOSTILE, entered=2, rejected=[(HOSTILE, 1)])]),
        bars.importance([(HOSTILE, 1.0)], method=HOSTILE),
        bars.memory(bars.MemoryParts(parts=[(HOSTILE, 1 << 30)], capacity_bytes=1 << 30)),
        coordinates.draw([coordinates.Strand(name=HOSTILE, values={HOSTILE: k}, step_s=1.0) for k in (1, 2)]),
        timeline.draw(
            timeline.Timeline(
                trace=Trace(name=HOSTILE, seconds=1.0, spans=(Span(kind="matmul", name=HOSTILE, start_s=0, end_s=1),))
            )
        ),
    ]
    for drawing in pictures:
        read(drawing)
        assert len(svg.document(drawing)) < 12_000


@pytest.mark.parametrize("log", [False, True])
def test_scales_hold_their_values_and_have_round_ticks_inside(log):
    scale = Scale.over([0.41, 0.9, math.inf], 10.0, 110.0, log=log)
    assert 10.0 < scale(0.41) < scale(0.9) < 110.0
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())
    assert len(scale.ticks()) >= 2
    same = Scale.over([0.5, 0.5], 0.0, 100.0, log=log)
    assert 0.0 < same(0.5) < 100.0


def test_side_by_side_pictures_keep_their_titles():
    one = bars.importance([("cfg", 1.0)])
    both = svg.beside([one, one])
    assert both.width == 2 * one.width + 32
    read(both)
