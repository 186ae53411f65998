"""The worker processes: what a candidate's death, delay and fault turn into, and that this process needs no JAX."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.jax.screen.pool import ShardyScreener
from tuner.layouts.layout import Candidate, Layout
from tuner.ports import Screened, WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.names import parse_slice

ROOT = Path(__file__).parents[4]
SPEC = WorkloadSpec(model="tests.adapters.jax.screen.workloads:patient")
SLICE = parse_slice("v5e-2x4")


def candidate(ill: str = "no", data: int = 8, blocks: str = "128,128,128", **flags: str) -> Candidate:
    layout = Layout.of({"data": data}, {"ill": ill, "blocks": blocks})
    return Candidate(layout=layout, compiler_options=tuple(flags.items()))


@pytest.fixture(scope="module")
def screener() -> Iterator[ShardyScreener]:
    with pytest.MonkeyPatch.context() as patch, ShardyScreener(workers=1, timeout_s=5) as pool:
        patch.syspath_prepend(ROOT)
        yield pool


def one(screener: ShardyScreener, asked: Candidate) -> Screened | Rejection:
    ((answered, outcome),) = screener.screen(SPEC, SLICE, [asked])
    assert answered == asked
    return outcome


def test_a_death_costs_one_candidate_and_the_rest_are_screened(screener: ShardyScreener) -> None:
    asked = [candidate(), candidate("abort"), candidate(data=4), candidate("raise"), candidate(data=2)]
    outcomes = dict(screener.screen(SPEC, SLICE, asked))
    assert list(outcomes) == asked
    died = outcomes[asked[1]]
    assert isinstance(died, Rejection)
    assert (died.stage, died.reason) == (Stage.SCREEN, RejectReason.SCREEN_ABORT)
    assert "SIGABRT" in died.detail
    raised = outcomes[asked[3]]
    assert isinstance(raised, Rejection)
    assert (raised.reason, raised.detail) == (RejectReason.LOWERING_ERROR, "ValueError: ill on purpose")
    for index, devices in ((0, 8), (2, 4), (4, 2)):
        outcome = outcomes[asked[index]]
        assert isinstance(outcome, Screened)
        assert outcome.program.devices == devices
        assert outcome.program.memory is not None
        assert outcome.program.memory.argument_bytes == 24 * 24 * 4 // devices


def test_one_that_does_not_come_back_is_given_up(screener: ShardyScreener) -> None:
    one(screener, candidate())  # the worker is warm: its first candidate may take longer
    outcome = one(screener, candidate("sleep"))
    assert isinstance(outcome, Rejection)
    assert outcome.reason is RejectReason.TIMEOUT
    assert outcome.numbers == {"timeout_s": 5}
    assert isinstance(one(screener, candidate()), Screened)


def test_what_does_not_divide_is_named(screener: ShardyScreener) -> None:
    outcome = one(screener, candidate(data=7))
    assert isinstance(outcome, Rejection)
    assert outcome.reason is RejectReason.LOWERING_ERROR
    assert outcome.detail == (
        "argument inputs/latents/x of shape (24, 24): dimension 0 of size 24 does not divide over data=7; "
        "legal products: 1, 2, 3, 4, 6, 8, 12, 24"
    )
    assert outcome.numbers == {"dimension": 0, "size": 24, "divisor": 7}


def test_an_axis_that_shards_two_dimensions_is_named(screener: ShardyScreener) -> None:
    outcome = one(screener, candidate("duplicate"))
    assert isinstance(outcome, Rejection)
    assert outcome.reason is RejectReason.LOWERING_ERROR
    assert "data" in outcome.detail


def test_blocks_and_flags_make_another_program(screener: ShardyScreener) -> None:
    asked = [candidate(), candidate(), candidate(blocks="256,128,128"), candidate(xla_flag="true")]
    first, again, blocks, flags = (outcome for _, outcome in screener.screen(SPEC, SLICE, asked))
    assert isinstance(first, Screened)
    assert first == again
    assert len({outcome.digest for outcome in (first, blocks, flags) if isinstance(outcome, Screened)}) == 3


def test_who_leaves_early_gets_no_old_answer(screener: ShardyScreener) -> None:
    early = screener.screen(SPEC, SLICE, [candidate(), candidate(data=4), candidate(data=2)])
    assert next(early)[0] == candidate()
    early.close()
    outcome = one(screener, candidate(data=3))
    assert isinstance(outcome, Screened)
    assert outcome.program.devices == 3


def test_a_workload_that_cannot_be_built_is_the_callers_fault(screener: ShardyScreener) -> None:
    with pytest.raises(ValueError, match="this workload cannot be built"):
        list(screener.screen(WorkloadSpec(model="tests.adapters.jax.screen.workloads:broken"), SLICE, [candidate()]))
    assert isinstance(one(screener, candidate()), Screened)


def test_the_pool_imports_no_jax() -> None:
    code = "import sys, adapters.jax.screen.pool; print([m for m in ('jax', 'jaxlib') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
