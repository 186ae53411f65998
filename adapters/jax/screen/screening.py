"""Screens one candidate in this process. Needs no libtpu: it lowers for TPU over virtual CPU devices."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import NamedSharding

from adapters.jax.screen.facts import screened
from adapters.jax.screen.reading import read
from adapters.jax.screen.shardy import partition
from adapters.jax.step import JaxWorkload, Step
from adapters.jax.topologies import auto_mesh
from tuner.canonical import canonical_json
from tuner.layouts.layout import Candidate
from tuner.ports import Screened
from tuner.rejections import Rejection, RejectReason, Stage


def screen(workload: JaxWorkload, candidate: Candidate) -> Screened | Rejection:
    """Lowers a candidate in its form without kernels, partitions it and counts it.

    Whatever the workload, JAX or Shardy raise is the candidate's end, with the first line of what they say. Shardy may
    abort the process.
    """
    layout = candidate.layout
    try:
        step = workload.step(layout, auto_mesh(jax.devices("cpu")[: layout.devices], layout), kernels=False)
        for problem in indivisible(step):
            return problem
        module = step.lower().compiler_ir("stablehlo")
        digest = program_digest(module, workload, candidate)
        partition(module)
        graph = read(module)
    except Exception as error:
        return Rejection(stage=Stage.SCREEN, reason=RejectReason.LOWERING_ERROR, detail=_sentence(error))
    return screened(graph, devices=layout.devices, digest=digest, blocks=_blocks(candidate))


def program_digest(module: Any, workload: JaxWorkload, candidate: Candidate) -> str:
    """Returns the SHA-256 of a lowered module without its locations, and of what its form without kernels leaves out.

    That is the options that are tuned last (kernel blocks) and the compiler's.
    """
    tuned = {choice.name for choice in workload.space.tuned}
    hidden = [
        [[name, value] for name, value in candidate.layout.options if name in tuned],
        [list(option) for option in candidate.compiler_options],
    ]
    text = module.operation.get_asm(enable_debug_info=False)
    return hashlib.sha256(f"{text}\n{canonical_json(hidden)}".encode()).hexdigest()


def indivisible(step: Step) -> Iterator[Rejection]:
    """Yields a rejection for every dimension of an argument that does not divide over its mesh axes."""
    names = list(inspect.signature(step.function).parameters)
    for position, argument in enumerate(step.arguments):
        name = names[position] if position < len(names) else str(position)
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            if isinstance(leaf.sharding, NamedSharding):
                full = "/".join(filter(None, (name, jax.tree_util.keystr(path, simple=True, separator="/"))))
                yield from _indivisible(full, leaf.shape, leaf.sharding)


def _indivisible(path: str, shape: tuple[int, ...], sharding: NamedSharding) -> Iterator[Rejection]:
    for dimension, entry in enumerate(sharding.spec):
        axes = (entry,) if isinstance(entry, str) else tuple(entry or ())
        over = math.prod(sharding.mesh.shape[axis] for axis in axes)
        size = shape[dimension]
        if size % over == 0:
            continue
        named = " x ".join(f"{axis}={sharding.mesh.shape[axis]}" for axis in axes)
        legal = [divisor for divisor in range(1, min(size, 256) + 1) if size % divisor == 0]
        yield Rejection(
            stage=Stage.SCREEN,
            reason=RejectReason.LOWERING_ERROR,
            detail=(
                f"argument {path} of shape {shape}: dimension {dimension} of size {size} does not divide over {named}; "
                f"legal: {', '.join(map(str, legal))}"
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
