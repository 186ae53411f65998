"""Pallas kernels in HLO text, and the sizes of attention among them.

Splash attention names itself in its metadata together with its blocks; its operands give the rest: queries, keys and
values are its arrays of three or more dimensions, in this order, after integer tables of the mask.
"""

from __future__ import annotations

import json
import math
from typing import Any

from adapters.jax.hlo.shapes import Shape
from adapters.jax.hlo.text import Computation, Instruction
from tuner.program.program import AttentionKernel

_LANES = 128
_SEQUENCE_MINOR = 2  # jax's QKVLayout.SEQ_MINOR: (heads, head size, length)


def is_kernel(instruction: Instruction) -> bool:
    """Returns True for a call of a Pallas kernel."""
    return instruction.opcode == "custom-call" and 'custom_call_target="tpu_custom_call"' in instruction.attributes


def attention_kernel(computation: Computation, instruction: Instruction) -> AttentionKernel | None:
    """Returns the sizes of an attention kernel's call, or None if the kernel does not say that it is one."""
    blocks = _blocks(instruction)
    if blocks is None:
        return None
    shapes = [shape for name in instruction.operands for shape in computation.instructions[name].shapes]
    arrays = [shape for shape in shapes if len(shape.dimensions) >= 3 and shape.dtype[0] in "bf"]
    if len(arrays) < 3:
        return None
    q_len, head_dim = _length_and_size(arrays[0], blocks.get("q_layout"))
    kv_len, _ = _length_and_size(arrays[1], blocks.get("k_layout"))
    return AttentionKernel(
        name=instruction.name,
        heads=math.prod(arrays[0].dimensions[:-2]),
        q_len=q_len,
        kv_len=kv_len,
        head_dim=head_dim,
        blocks=(blocks["block_q"], blocks["block_kv"], blocks["block_kv_compute"]),
        # A mask that is a function of the indices comes with the indices of the queries, one register row for each.
        masked="segmented" not in instruction.name
        and any(shape.dtype == "s32" and shape.dimensions == (q_len, _LANES) for shape in shapes),
    )


def kernel_flops(instruction: Instruction) -> float:
    """Returns the operations that a kernel's author declared; 0 if none were."""
    estimate = instruction.config.get("custom_call_config", {}).get("cost_estimate", {})
    return float(estimate.get("flops", 0))


def _blocks(instruction: Instruction) -> dict[str, Any] | None:
    written = instruction.json("kernel_metadata=").get("xprof_metadata")
    if not isinstance(written, str):
        return None
    metadata = json.loads(written)
    named = ("block_q", "block_kv", "block_kv_compute")
    return metadata if all(isinstance(metadata.get(name), int) for name in named) else None


def _length_and_size(shape: Shape, layout: object) -> tuple[int, int]:
    outer, inner = shape.dimensions[-2:]
    return (inner, outer) if layout == _SEQUENCE_MINOR else (outer, inner)
