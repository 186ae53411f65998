"""Calls beside the schedule, as libtpu 0.0.50.1 puts collectives and copies onto the sparse cores of v7x."""

from __future__ import annotations

from adapters.jax.hlo.read import read_program
from tuner.program.program import Collective, CollectiveKind, Compute, ComputeKind, Done, Start

TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

%gather (a: bf16[8,128]) -> bf16[32,128] {
  %a = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.1 = bf16[32,128]{1,0:T(8,128)(2,1)} all-gather(%a), channel_id=1, replica_groups={{0,1,2,3}}, \
dimensions={0}, use_global_device_ids=true
}, execution_thread="sparsecore"

%around (b: bf16[8,128]) -> bf16[32,128] {
  %b = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %inner.call-start = ((bf16[8,128]{1,0:T(8,128)(2,1)}), bf16[32,128]{1,0:T(8,128)(2,1)}, u32[]{:S(8)}) \
call-start(%b), async_execution_thread="sparsecore", to_apply=%gather
  ROOT %inner.call-done = bf16[32,128]{1,0:T(8,128)(2,1)} call-done(%inner.call-start)
}, execution_thread="sparsecore"

%turn (c: bf16[8,128]) -> bf16[8,128] {
  %c = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %copy.1 = bf16[8,128]{1,0:T(8,128)(2,1)} copy(%c)
}, execution_thread="sparsecore"

ENTRY %main (p: bf16[8,128]) -> bf16[8,128] {
  %p = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %gather.call-start = ((), (), (s32[1]{0:T(128)S(2)})) call-start(), async_execution_thread="sparsecore", \
to_apply=%around
  %turn.call-start = ((), (), (s32[1]{0:T(128)S(2)})) call-start(), async_execution_thread="sparsecore", to_apply=%turn
  %turn.call-update = ((bf16[8,128]{1,0:T(8,128)(2,1)}), bf16[8,128]{1,0:T(8,128)(2,1)}) \
call-update(%turn.call-start, %p)
  %turn.call-done = bf16[8,128]{1,0:T(8,128)(2,1)} call-done(%turn.call-update)
  %gather.call-update = ((bf16[8,128]{1,0:T(8,128)(2,1)}), bf16[32,128]{1,0:T(8,128)(2,1)}) \
call-update(%gather.call-start, %turn.call-done)
  %work = bf16[8,128]{1,0:T(8,128)(2,1)} exponential(%p)
  %gather.call-done = bf16[32,128]{1,0:T(8,128)(2,1)} call-done(%gather.call-update)
  ROOT %out = bf16[8,128]{1,0:T(8,128)(2,1)} add(%work, %work)
}
"""


def test_a_collective_runs_from_where_it_gets_its_operands_to_where_it_is_done() -> None:
    nodes = read_program(TEXT, 4, None).schedule
    kinds = [type(node) for node in nodes]
    assert kinds == [Compute, Start, Compute, Done, Compute]
    start, done = nodes[1], nodes[3]
    assert isinstance(start, Start)
    assert isinstance(done, Done)
    found: Collective = start.collective
    assert (found.kind, found.asynchronous, found.name) == (CollectiveKind.ALL_GATHER, True, done.name)
    assert (found.operand_bytes, found.result_bytes, found.groups) == (2048, 8192, ((0, 1, 2, 3),))


def test_a_copy_that_is_waited_for_at_once_takes_time() -> None:
    copy = read_program(TEXT, 4, None).schedule[0]
    assert isinstance(copy, Compute)
    assert (copy.kind, copy.bytes) == (ComputeKind.COPY, 2 * 2048)
