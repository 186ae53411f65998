"""The trace of a step says when what the clock adds up happens."""

import numpy as np
import pytest

from tests.tuner.timeline.test_timeline import EXACT, IDENTITY, LAYOUT, V5E, exchange, permute, seconds
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.program.program import Done, Loop, Program, Start
from tuner.timeline.ranker import Ranker
from tuner.timeline.trace import Trace

NESTED = (
    seconds(1.0),
    Start(collective=permute("early")),
    Loop(
        name="layers",
        trips=3,
        body=(
            seconds(0.5),
            Start(collective=permute("inner")),
            exchange(),
            Loop(name="blocks", trips=2, body=(seconds(0.25), exchange("small", 1 << 18))),
            Done(name="inner"),
            seconds(0.5),
        ),
    ),
    Done(name="early"),
    Loop(name="never", trips=0, body=(seconds(9.0),)),
    seconds(2.0),
)


def ranker(*nodes, degraded=()):
    return Ranker(Program(devices=16, schedule=nodes), V5E, LAYOUT, EXACT, degraded)


def exposed(trace: Trace) -> float:
    return sum(span.exposed_s if span.body is None else span.body.trips * exposed(span.body) for span in trace.spans)


@pytest.mark.parametrize("seed", range(4))
def test_the_trace_is_as_long_as_the_prediction_under_any_placement(seed):
    devices = np.random.default_rng(seed).permutation(16).tolist()
    one = ranker(*NESTED)
    placement = Placement(devices=tuple(devices))
    assert one.trace(placement).seconds == pytest.approx(one.predict(placement).step_s, rel=1e-12)


def test_what_is_exposed_adds_up_where_every_trip_is_alike():
    one = ranker(seconds(1.0), *NESTED[2].body[:3], Done(name="inner"), NESTED[2])
    assert exposed(one.trace(IDENTITY)) == pytest.approx(one.predict(IDENTITY).exposed_communication_s)


def test_neighbours_of_one_kind_are_one_span_and_a_loop_is_folded():
    trace = ranker(seconds(1.0), seconds(2.0), Loop(name="layers", trips=3, body=(seconds(2.0), exchange()))).trace(
        IDENTITY
    )
    run, loop = trace.spans
    assert (run.kind, run.operations, run.seconds) == ("matmul", 2, pytest.approx(3.0))
    assert loop.body is not None
    assert (loop.body.name, loop.body.trips) == ("layers", 3)
    assert loop.seconds == pytest.approx(3 * loop.body.seconds)
    assert [span.kind for span in loop.body.spans] == ["matmul", "all-to-all"]


def test_compute_runs_beside_what_is_asynchronous():
    start, run = ranker(Start(collective=permute("early")), seconds(0.25), Done(name="early")).trace(IDENTITY).spans
    assert (start.start_s, run.start_s) == (0.0, 0.0)
    assert start.exposed_s == pytest.approx(start.end_s - 0.25)


def test_a_step_that_never_ends_has_no_trace():
    cut = [Degraded(ends=((x, 1), (x, 2)), rate=0.0) for x in range(4)]
    with pytest.raises(InvalidValue, match="never ends"):
        ranker(seconds(1.0), Start(collective=permute("across")), Done(name="across"), degraded=cut).trace(IDENTITY)
