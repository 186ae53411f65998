"""Operations without communication: what bounds each, and its figures."""

from __future__ import annotations

from adapters.jax.hlo.kernels import attention_kernel, is_kernel, kernel_flops
from adapters.jax.hlo.products import PRODUCTS, flops, product_flops, products
from adapters.jax.hlo.text import Computation, Instruction, Module
from adapters.jax.hlo.traffic import traffic
from tuner.program.program import Compute, ComputeKind

# Names of values or parts of them; no code runs for these.
_NOTHING = frozenset(
    {
        "parameter",
        "constant",
        "bitcast",
        "tuple",
        "get-tuple-element",
        "after-all",
        "partition-id",
        "replica-id",
        "opt-barrier",
        "add-dependency",
        "get-dimension-size",
        "domain",
    }
)
# Moves data and computes nothing.
_MOVES = frozenset(
    {
        "broadcast",
        "concatenate",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "iota",
        "pad",
        "reshape",
        "reverse",
        "slice",
        "transpose",
    }
)
# Custom calls of the compiler's own that run no code: they name a buffer or reinterpret one.
_BUFFER_CALLS = ("AllocateBuffer", "ConcatBitcast", "SliceBitcast", "Sharding", "SPMDFullToShardShape")


def compute(module: Module, computation: Computation, instruction: Instruction) -> Compute | None:
    """Returns the operation of an instruction, or None if nothing worth counting runs for it."""
    if instruction.opcode in _NOTHING or _is_buffer(instruction):
        return None
    if is_kernel(instruction):
        hbm, vmem = traffic(module, computation, instruction)
        kernel = attention_kernel(computation, instruction)
        return Compute(
            name=instruction.name,
            kind=ComputeKind.KERNEL,
            flops=kernel.flops if kernel is not None else kernel_flops(instruction),
            bytes=hbm,
            vmem_bytes=vmem,
            kernel=kernel,
        )
    if all(shape.scalar for shape in instruction.shapes):
        return None
    hbm, vmem = traffic(module, computation, instruction)
    kind = _kind(module, instruction)
    return Compute(
        name=instruction.name,
        kind=kind,
        flops=_flops(module, computation, instruction) if kind is ComputeKind.MATMUL else 0.0,
        bytes=hbm,
        vmem_bytes=vmem,
        cycles=_cycles(instruction),
    )


def _is_buffer(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and any(
        f'custom_call_target="{target}"' in instruction.attributes for target in _BUFFER_CALLS
    )


def _kind(module: Module, instruction: Instruction) -> ComputeKind:
    called = instruction.called("calls") if instruction.opcode == "fusion" else None
    if instruction.opcode in PRODUCTS or (called and any(products(module, module[called]))):
        return ComputeKind.MATMUL
    moves = _only_moves(module, module[called]) if called else instruction.opcode in _MOVES
    return ComputeKind.COPY if moves else ComputeKind.MEMORY


def _only_moves(module: Module, computation: Computation) -> bool:
    for instruction in computation.instructions.values():
        called = instruction.called("calls") if instruction.opcode == "fusion" else None
        if called is not None:
            if not _only_moves(module, module[called]):
                return False
        elif instruction.opcode not in _MOVES | _NOTHING and not all(shape.scalar for shape in instruction.shapes):
            return False
    return True


def _flops(module: Module, computation: Computation, instruction: Instruction) -> float:
    if instruction.opcode in PRODUCTS:
        return product_flops(instruction, [computation.instructions[n].shapes[0] for n in instruction.operands[:2]])
    called = instruction.called("calls")
    assert called is not None
    return flops(module, module[called])


def _cycles(instruction: Instruction) -> int | None:
    cycles = instruction.config.get("window_config", {}).get("estimated_cycles")
    return None if cycles is None else int(cycles)
