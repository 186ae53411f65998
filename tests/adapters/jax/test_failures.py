from __future__ import annotations

import pytest

from adapters.jax.failures import MAX_DETAIL, aborted, rejection
from tuner.rejections import RejectReason, Stage

GIB, MIB = 1 << 30, 1 << 20
KERNEL = (
    "%splash_mha_fwd_no_residuals.1 = bf16[2,8192,128]{2,1,0} custom-call(%q), metadata={op_name=" + "x" * 900 + "}"
)


@pytest.mark.parametrize(
    ("text", "reason", "needed", "available"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (32.00G) exceeds available HBM (15.75G). HLO module: jit_step.\nSee https://openxla.org/xla/",
            RejectReason.HBM,
            32 * GIB,
            15.75 * GIB,
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (24.50G) "
            "exceeds available HBM (15.75G).",
            RejectReason.HBM,
            24.5 * GIB,
            15.75 * GIB,
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. Ran out of memory in "
            "memory space hbm. Used 215.17G of 31.25G hbm. Exceeded hbm capacity by 183.92G.\n\nTotal hbm usage",
            RejectReason.HBM,
            215.17 * GIB,
            31.25 * GIB,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 149.40M "
            "of 128.00M vmem. Exceeded vmem capacity by 21.40M.\n\nProgram vmem requirement 149.40M:\n    scoped 149M",
            RejectReason.SCOPED_VMEM,
            149.4 * MIB,
            128 * MIB,
        ),
        (
            "RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\nRan out of memory in memory space vmem while "
            f"allocating on stack for {KERNEL}. Scoped allocation with size 24.14M and limit 16.00M exceeded "
            "scoped vmem limit by 8.14M. It should not be possible to run out of scoped vmem",
            RejectReason.SCOPED_VMEM,
            24.14 * MIB,
            16 * MIB,
        ),
    ],
)
def test_memory_that_lacks_comes_with_its_numbers(
    text: str, reason: RejectReason, needed: float, available: float
) -> None:
    found = rejection(text)
    assert (found.stage, found.reason) == (Stage.COMPILE, reason)
    assert found.numbers["needed_bytes"] == pytest.approx(needed)
    assert found.numbers["available_bytes"] == pytest.approx(available)
    assert found.detail.startswith("needs ")
    assert len(found.detail) <= MAX_DETAIL


def test_numbers_that_are_not_there_are_not_made_up() -> None:
    found = rejection("RESOURCE_EXHAUSTED: CompileTimeHbmOom: out of memory")
    assert found.reason is RejectReason.HBM
    assert found.numbers == {}
    partial = rejection("RESOURCE_EXHAUSTED: it exceeds available HBM (15.75G)")
    assert partial.reason is RejectReason.HBM
    assert partial.numbers == {"available_bytes": 15.75 * GIB}


def test_the_kernel_that_does_not_fit_is_named() -> None:
    found = rejection(f"CompileTimeScopedVmemOom: while allocating on stack for {KERNEL}. Scoped allocation with size "
                      "24M and limit 16M")  # fmt: skip
    assert found.detail.startswith("needs 24M of 16M VMEM by splash_mha_fwd_no_residuals.1: ")


ROUTING = (
    "INTERNAL: RET_CHECK failure (platforms/xla/service/jellyfish/lowering/net_util.cc:2336) info.has_value() "
    "Failed to create limited ICI routing replica info table"
)


def test_chips_that_cannot_reach_each_other_are_a_matter_of_routing() -> None:
    assert rejection(f"{ROUTING}\n\nSuspected Python Code Location:\n  step.py:23").reason is RejectReason.ROUTING
    assert "step.py" not in rejection(f"{ROUTING}\n\nSuspected Python Code Location:\n  step.py:23").detail
    assert aborted("SIGABRT", -6, f"ValueOrDie on {ROUTING}").reason is RejectReason.ROUTING


def test_anything_else_is_the_compilers_error() -> None:
    found = rejection("INVALID_ARGUMENT: No such compile option: 'xla_tpu_nonsense'")
    assert (found.reason, found.numbers) == (RejectReason.COMPILER_ERROR, {})
    assert "xla_tpu_nonsense" in found.detail
    died = aborted("SIGSEGV", -11, "it said nothing")
    assert (died.reason, died.numbers) == (RejectReason.COMPILER_ABORT, {"exit_code": -11})
