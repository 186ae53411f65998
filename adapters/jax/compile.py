"""Lowering and compiling one candidate ahead of time, in this process.

The compiler may abort the process or never come back, so a search compiles through `adapters.jax.pool`, which runs this
in processes of their own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import jax

from adapters.jax.arguments import argument_shardings
from adapters.jax.failures import not_lowered, rejection
from adapters.jax.hlo.read import read_program
from adapters.jax.step import JaxWorkload
from adapters.jax.topologies import mesh_for
from tuner.canonical import canonical_json
from tuner.errors import InvalidValue, ToolchainMissing
from tuner.layouts.layout import Candidate
from tuner.ports import Compiled
from tuner.program.program import Memory
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

Known = Callable[[str], bool]
"""Says whether the result for a digest of a lowered program is known already."""


def compile_candidate(
    workload: JaxWorkload, slice_: Slice, candidate: Candidate, known: Known
) -> tuple[Compiled | Rejection | None, str]:
    """Compiles a candidate for a slice, on the mesh of its placement, else in the order of the slice's device indices.

    Returns the outcome (None if `known` said that it is known) and the text of the compiled program, if there is one.
    What the workload or JAX raise while lowering, and what the compiler raises, are the candidate's end. Raises
    ToolchainMissing without libtpu, and `JaxRuntimeError` if libtpu cannot be used at all.
    """
    started = time.monotonic()
    mesh = mesh_for(slice_, candidate.layout, candidate.placement)
    try:
        step = workload.step(candidate.layout, mesh, kernels=True)
        arguments = argument_shardings(step)
        lowered = step.lower(platform(slice_))
    except ToolchainMissing:
        raise
    except Exception as error:
        return not_lowered(error), ""
    digest = lowered_digest(lowered, candidate)
    if known(digest):
        return None, ""
    try:
        compiled = lowered.compile(compiler_options=compiler_options(slice_, candidate) or None)
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        return rejection(str(error)), ""
    compile_s = time.monotonic() - started
    text = compiled.as_text()
    try:
        program = read_program(text, slice_.num_devices, memory_of(compiled))
    except InvalidValue as error:
        return rejection(f"the compiled program cannot be read: {error}"), text
    return Compiled(program=program, lowered_digest=digest, arguments=arguments, compile_s=compile_s), text


def platform(slice_: Slice) -> str:
    """Returns what JAX calls the platform of a slice's devices."""
    return "tpu" if slice_.generation.has_links else "cpu"


def compiler_options(slice_: Slice, candidate: Candidate) -> dict[str, str]:
    """Returns the compiler options that the slice's compiler knows: those for TPUs mean nothing on a CPU."""
    tpu = slice_.generation.has_links
    return {name: value for name, value in candidate.compiler_options if tpu or not name.startswith("xla_tpu_")}


def lowered_digest(lowered: Any, candidate: Candidate) -> str:
    """Returns the SHA-256 of a lowered program, its compiler options and the placement that it is compiled under.

    The text is taken without locations, so that neither moving a source line nor another way to call the same function
    makes another program of it. It names logical devices only, so the placement counts by itself where there is one.
    """
    text = lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=False)
    options = canonical_json([list(option) for option in candidate.compiler_options])
    placed = "" if candidate.placement is None else f"\n{canonical_json(list(candidate.placement.devices))}"
    return hashlib.sha256(f"{text}\n{options}{placed}".encode()).hexdigest()


def memory_of(compiled: Any) -> Memory | None:
    """Returns what a compiled program keeps in HBM, or None where the compiler does not say; that is not 0 bytes."""
    try:
        stats = compiled.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    if stats is None:
        return None
    memory = Memory(
        argument_bytes=int(stats.argument_size_in_bytes),
        output_bytes=int(stats.output_size_in_bytes),
        temp_bytes=int(stats.temp_size_in_bytes),
        alias_bytes=int(stats.alias_size_in_bytes),
        code_bytes=int(stats.generated_code_size_in_bytes),
    )
    # A program has code or arguments; all zeros is a backend without the analysis.
    return memory if memory.total_bytes > 0 else None
