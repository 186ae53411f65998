"""Screens one candidate in this process. Needs no libtpu: it traces over virtual CPU devices, and lowers for a TPU if
the trace cannot be read."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator

import jax

from adapters.jax.arguments import argument_shardings
from adapters.jax.screen.facts import screened
from adapters.jax.screen.graph import Graph
from adapters.jax.screen.primitives import CannotRead
from adapters.jax.screen.reading import read
from adapters.jax.screen.shardy import partition
from adapters.jax.screen.traced import read as read_traced
from adapters.jax.step import JaxWorkload, Step
from adapters.jax.topologies import auto_mesh
from tuner.canonical import canonical_json
from tuner.layouts.layout import Candidate, Layout
from tuner.ports import ArgumentSharding, Screened
from tuner.rejections import Rejection, RejectReason, Stage


def screen(workload: JaxWorkload, candidate: Candidate) -> Screened | Rejection:
    """Traces a candidate in its form without kernels and counts it, lowered and partitioned if need be.

    Whatever the workload, JAX or Shardy raise is the candidate's end, with the first line of what they say. Shardy may
    abort the process.
    """
    layout = candidate.layout
    try:
        step = workload.step(layout, auto_mesh(jax.devices("cpu")[: layout.devices], layout), kernels=False)
        problem = next(indivisible(argument_shardings(step), layout), None)
        if problem is not None:
            return problem
        graph, program = _graph(step)
    except Exception as error:
        return Rejection(stage=Stage.SCREEN, reason=RejectReason.LOWERING_ERROR, detail=_sentence(error))
    digest = program_digest(program, workload, candidate)
    return screened(graph, devices=layout.devices, digest=digest, blocks=_blocks(candidate))


def _graph(step: Step) -> tuple[Graph, str]:
    """Returns the per-device program and a text that two steps share only if they are one program."""
    traced = step.jitted().trace(*step.arguments)
    try:
        return read_traced(step, traced)
    except CannotRead:
        module = traced.lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
        text = module.operation.get_asm(enable_debug_info=False)  # without locations
        partition(module)
        return read(module), text


def program_digest(program: str, workload: JaxWorkload, candidate: Candidate) -> str:
    """Returns the SHA-256 of a program and of what its form without kernels leaves out.

    That is the options that are tuned last (kernel blocks) and the compiler's.
    """
    tuned = {choice.name for choice in workload.space.tuned}
    hidden = [
        [[name, value] for name, value in candidate.layout.options if name in tuned],
        [list(option) for option in candidate.compiler_options],
    ]
    return hashlib.sha256(f"{program}\n{canonical_json(hidden)}".encode()).hexdigest()


def indivisible(arguments: Iterable[ArgumentSharding], layout: Layout) -> Iterator[Rejection]:
    """Yields a rejection for every dimension of an argument that does not divide over its mesh axes."""
    for argument in arguments:
        for dimension, (size, axes) in enumerate(zip(argument.shape, argument.spec, strict=True)):
            over = math.prod(map(layout.size, axes))
            if size % over == 0:
                continue
            named = " x ".join(f"{axis}={layout.size(axis)}" for axis in axes)
            legal = ", ".join(str(divisor) for divisor in range(1, min(size, 256) + 1) if size % divisor == 0)
            yield Rejection(
                stage=Stage.SCREEN,
                reason=RejectReason.LOWERING_ERROR,
                detail=(
                    f"argument {argument.path} of shape {argument.shape}: dimension {dimension} of size {size} does "
                    f"not divide over {named}; legal products: {legal}"
                ),
                numbers={"dimension": dimension, "size": size, "divisor": over},
            )


def _blocks(candidate: Candidate) -> tuple[int, int, int]:
    """Returns the kernel blocks that the options name (``512,1024,512``); zeros if they name none."""
    for name, value in candidate.layout.options:
        found = re.fullmatch(r"(\d+),(\d+),(\d+)", str(value))
        if "block" in name and found:
            return int(found[1]), int(found[2]), int(found[3])
    return 0, 0, 0


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["without a word"]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:600]
