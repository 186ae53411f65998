"""Seconds of operations without communication.

Matrix products take the compiler's cycles, which are within 3 to 14 % of the roofline. Memory-bound operations take the
smaller of its cycles, which are 3 to 4 times too high there, and bytes over sustained bandwidth. Attention kernels have
no cycles at all and come from a table (compared on v5e, libtpu 0.0.50.1).
"""

from __future__ import annotations

from tuner.calibration.attention import attention_seconds
from tuner.calibration.calibration import Calibration
from tuner.errors import UnknownName
from tuner.program.program import Compute, ComputeKind
from tuner.slices.generations import Generation

FALLBACK_MXU_SHARE = 0.8
"""Share of peak that a kernel without a table entry is assumed to reach."""


def compute_seconds(operation: Compute, generation: Generation, calibration: Calibration) -> float:
    """Returns the time of one execution on one device."""
    by_cycles = operation.cycles / generation.clock_hz if operation.cycles is not None else None
    by_bytes = operation.bytes / (generation.hbm_bytes_per_s * calibration.hbm_efficiency)
    by_flops = operation.flops / generation.peak_flops
    match operation.kind:
        case ComputeKind.SCALAR:
            return 0.0
        case ComputeKind.MATMUL:
            if by_cycles is None:
                return max(by_flops / min(1.0, calibration.matmul_efficiency), by_bytes)
            # However high the efficiency, a product is not faster than the peak.
            return max(by_cycles / calibration.matmul_efficiency, min(by_cycles, by_flops))
        case ComputeKind.KERNEL:
            known_s = _attention_seconds(operation, generation, calibration)
            if known_s is not None:
                return known_s
            if operation.kernel is not None:
                by_flops = operation.kernel.flops / generation.peak_flops
            return max(by_flops / FALLBACK_MXU_SHARE, by_bytes)
        case _:
            if by_cycles is None or operation.bytes == 0:
                return by_bytes if by_cycles is None else by_cycles
            return min(by_cycles, by_bytes)


def is_guessed(operation: Compute, generation: Generation) -> bool:
    """Returns whether an operation is a kernel without a table of cycles, timed by its operations alone."""
    return operation.kind is ComputeKind.KERNEL and _attention_seconds(operation, generation, None) is None


def _attention_seconds(operation: Compute, generation: Generation, calibration: Calibration | None) -> float | None:
    if operation.kernel is None:
        return None
    try:
        return attention_seconds(operation.kernel, generation, calibration)
    except UnknownName:
        return None
