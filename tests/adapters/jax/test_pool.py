from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.jax import pool as pools
from adapters.jax.compile import memory_of
from adapters.jax.hlo.read import read_program
from adapters.jax.pool import CompilePool, CompilerBusy, worker_environment
from tests.adapters.jax.workloads import TINY
from tuner.errors import TunerError, UnknownName
from tuner.layouts.layout import Candidate, Layout
from tuner.ports import ArgumentSharding, Compiled, WorkloadSpec
from tuner.program.program import Collective, CollectiveKind, Memory
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.names import parse_slice

GIB = 1 << 30
V5E_4 = parse_slice("v5e-2x2")
V5E_64 = parse_slice("v5e-8x8")


def candidate(way: str = "fine", data: int = 2, tensor: int = 2, **flags: str) -> Candidate:
    layout = Layout.of({"data": data, "tensor": tensor}, {"way": way})
    return Candidate(layout=layout, compiler_options=tuple(flags.items()))


@pytest.fixture(scope="module")
def texts() -> dict[str, bytes]:
    return {}


@pytest.fixture(scope="module")
def pool(texts: dict[str, bytes]) -> Iterator[CompilePool]:
    with CompilePool(workers=1, timeout_s=120, on_text=texts.__setitem__) as pool:
        yield pool


def compiled(pool: CompilePool, wanted: Candidate, **arguments: Any) -> Compiled:
    outcome = pool.compile(TINY.spec, V5E_4, wanted, **arguments)
    assert isinstance(outcome, Compiled), outcome
    return outcome


def rejected(pool: CompilePool, wanted: Candidate, slice_: Any = V5E_4) -> Rejection:
    outcome = pool.compile(TINY.spec, slice_, wanted)
    assert isinstance(outcome, Rejection), outcome
    assert outcome.stage is Stage.COMPILE
    return outcome


@pytest.mark.compiler
def test_a_candidate_becomes_a_program_with_memory_and_arguments(pool: CompilePool, texts: dict[str, bytes]) -> None:
    outcome = compiled(pool, candidate())
    (reduce,) = (node for node, _ in outcome.program.walk() if isinstance(node, Collective))
    assert reduce.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
    assert reduce.groups == ((0, 1), (2, 3))  # tensor is the inner axis
    memory = outcome.program.memory
    assert memory is not None
    assert memory.argument_bytes == 2 * (4096 * 512 + 2 * 512 * 1024)
    assert outcome.arguments == (
        ArgumentSharding(path="params/down", shape=(2048, 512), dtype="bfloat16", spec=(("tensor",), ())),
        ArgumentSharding(path="params/up", shape=(512, 2048), dtype="bfloat16", spec=((), ("tensor",))),
        ArgumentSharding(path="x", shape=(8192, 512), dtype="bfloat16", spec=(("data",), ())),
    )
    assert outcome.compile_s > 0
    text = zlib.decompress(texts[outcome.lowered_digest]).decode()
    assert read_program(text, 4, memory) == outcome.program


@pytest.mark.compiler
def test_a_lowered_program_that_is_known_is_not_compiled(pool: CompilePool) -> None:
    digest = compiled(pool, candidate()).lowered_digest
    asked: list[str] = []

    def known(found: str) -> bool:
        asked.append(found)
        return True

    assert pool.compile(TINY.spec, V5E_4, candidate(), known=known) is None
    assert pool.compile(TINY.spec, V5E_4, candidate("renamed"), known=known) is None
    flags = {"xla_tpu_scoped_vmem_limit_kib": "20480"}
    assert pool.compile(TINY.spec, V5E_4, candidate(**flags), known=known) is None
    assert pool.compile(TINY.spec, V5E_4, candidate(data=4, tensor=1), known=known) is None
    assert asked[0] == digest
    assert len(set(asked)) == 4  # another module name, flags or layout is another program
    assert compiled(pool, candidate(), known=lambda _: False).lowered_digest == digest


@pytest.mark.compiler
def test_the_digest_is_the_same_in_another_process(pool: CompilePool) -> None:
    with CompilePool(timeout_s=120) as other:
        assert compiled(other, candidate()).lowered_digest == compiled(pool, candidate()).lowered_digest


@pytest.mark.compiler
def test_hbm_that_lacks_is_named_with_both_numbers(pool: CompilePool) -> None:
    refusal = rejected(pool, candidate("hbm"))
    assert refusal.reason is RejectReason.HBM
    assert refusal.numbers["available_bytes"] == 15.75 * GIB
    assert refusal.numbers["needed_bytes"] > 15.75 * GIB


@pytest.mark.compiler
def test_kernel_blocks_that_do_not_fit_are_named(pool: CompilePool) -> None:
    refusal = rejected(pool, candidate("vmem"))
    assert refusal.reason is RejectReason.SCOPED_VMEM
    assert refusal.numbers["available_bytes"] == 16 << 20
    assert 20 << 20 < refusal.numbers["needed_bytes"] < 30 << 20


@pytest.mark.compiler
def test_other_errors_of_the_compiler_and_of_lowering(pool: CompilePool) -> None:
    refusal = rejected(pool, candidate(xla_tpu_nonsense="1"))
    assert refusal.reason is RejectReason.COMPILER_ERROR
    assert "xla_tpu_nonsense" in refusal.detail
    refusal = rejected(pool, candidate("raises"))
    assert refusal.reason is RejectReason.LOWERING_ERROR
    assert "7 heads do not divide over tensor=2" in refusal.detail
    refusal = rejected(pool, candidate("unfixed"))
    assert refusal.reason is RejectReason.COMPILER_ERROR
    assert "only a fixed trip count can be predicted" in refusal.detail


@pytest.mark.compiler
def test_a_process_that_aborts_costs_its_candidate_and_is_replaced(pool: CompilePool) -> None:
    refusal = rejected(pool, candidate("abort"))
    assert refusal.reason is RejectReason.COMPILER_ABORT
    assert refusal.numbers == {"exit_code": -6}
    assert refusal.detail == "the compiler's process ended with SIGABRT: Check failed: for the test"
    compiled(pool, candidate())


@pytest.mark.compiler
def test_chips_that_cannot_reach_each_other_abort_the_compiler(pool: CompilePool) -> None:
    refusal = rejected(pool, candidate("unroutable", data=8, tensor=8), V5E_64)
    assert refusal.reason is RejectReason.ROUTING


@pytest.mark.compiler
def test_a_compile_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_IMPORT_S", 0.0)
    with CompilePool(timeout_s=2) as pool:
        started = time.monotonic()
        refusal = rejected(pool, candidate("hang"))
        assert (refusal.reason, refusal.numbers) == (RejectReason.TIMEOUT, {"timeout_s": 2})
        assert time.monotonic() - started < 20


@pytest.mark.compiler
def test_four_compile_at_once() -> None:
    wanted = [candidate(data=data, tensor=4 // data) for data in (1, 2, 4)] + [candidate("renamed")]
    with CompilePool(workers=4, timeout_s=300) as pool, ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda each: pool.compile(TINY.spec, V5E_4, each), wanted))
        assert [type(outcome) for outcome in outcomes] == [Compiled] * 4
        assert len(pool._living) == 4


@pytest.mark.compiler
def test_closing_the_pool_ends_a_compile_in_another_thread() -> None:
    pool = CompilePool(timeout_s=300)
    errors: list[BaseException] = []

    def hang() -> None:
        try:
            pool.compile(TINY.spec, V5E_4, candidate("hang"))
        except TunerError as error:
            errors.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    while not pool._living:
        time.sleep(0.05)
    pool.close()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert "closed" in str(errors[0])
    with pytest.raises(TunerError, match="closed"):
        pool.compile(TINY.spec, V5E_4, candidate())


def test_a_workload_that_cannot_be_built_is_an_error_of_the_caller(pool: CompilePool) -> None:
    with pytest.raises(UnknownName, match=r"wan2\.9"):
        pool.compile(WorkloadSpec(model="wan2.9-t2v"), V5E_4, candidate())
    with pytest.raises(RuntimeError, match="checkpoint"):
        pool.compile(WorkloadSpec(model="tests.adapters.jax.workloads:broken"), V5E_4, candidate())


def test_an_error_in_known_does_not_leave_a_worker_in_the_middle(pool: CompilePool) -> None:
    def known(digest: str) -> bool:
        raise LookupError("the store is gone")

    with pytest.raises(LookupError, match="the store is gone"):
        pool.compile(TINY.spec, V5E_4, candidate(), known=known)
    assert pool.compile(TINY.spec, V5E_4, candidate(), known=lambda _: True) is None


def test_only_processes_that_never_see_a_chip_may_load_libtpu_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a=1")
    monkeypatch.setattr(pools, "chips_attached", lambda: False)
    environment = worker_environment()
    assert environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert (environment["JAX_PLATFORMS"], environment["TPU_SKIP_MDS_QUERY"]) == ("cpu", "1")
    assert environment["LIBTPU_INIT_ARGS"] == "--xla_a=1"
    assert CompilePool(workers=4)._idle.qsize() == 4
    monkeypatch.setattr(pools, "chips_attached", lambda: True)
    assert "ALLOW_MULTIPLE_LIBTPU_LOAD" not in worker_environment()
    assert CompilePool(workers=4)._idle.qsize() == 1


@pytest.mark.compiler
def test_a_lock_that_another_process_holds_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    load = (
        "import sys; from jax.experimental import topologies as t; "
        "t.get_topology_desc(topology_name='v5e:2x2', platform='tpu'); print('loaded', flush=True); sys.stdin.read()"
    )
    monkeypatch.setattr(pools, "chips_attached", lambda: True)  # so that no process may load it beside another
    holder = subprocess.Popen(
        [sys.executable, "-c", load],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=worker_environment(),
    )
    with holder, CompilePool(timeout_s=120) as pool:
        assert holder.stdout is not None
        try:
            if b"loaded" not in holder.stdout.read(6):
                pytest.skip("someone else holds libtpu's lock")
            with pytest.raises(CompilerBusy, match=r"/tmp/libtpu_lockfile; wait until it ends"):
                pool.compile(TINY.spec, V5E_4, candidate())
        finally:
            holder.kill()


def test_memory_that_the_compiler_does_not_tell_is_unknown() -> None:
    def answering(**sizes: int) -> Any:
        names = ("argument", "output", "temp", "alias", "generated_code")
        stats = SimpleNamespace(**{f"{name}_size_in_bytes": sizes.get(name, 0) for name in names})
        return SimpleNamespace(memory_analysis=lambda: stats)

    def unable() -> None:
        raise NotImplementedError

    assert memory_of(SimpleNamespace(memory_analysis=lambda: None)) is None
    assert memory_of(SimpleNamespace(memory_analysis=unable)) is None
    assert memory_of(answering()) is None
    assert memory_of(answering(argument=8, temp=2, alias=1)) == Memory(
        argument_bytes=8, output_bytes=0, temp_bytes=2, alias_bytes=1
    )


def test_the_pool_does_not_import_jax() -> None:
    code = "import sys, adapters.jax.pool; sys.exit('jax' in sys.modules)"
    path = os.pathsep.join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}).returncode == 0
