"""What the search needs from the outside, as protocols.

A workload is described here without JAX: its name, its declared identity, its space, its legality. How to build, lower
and compile its step is the business of `adapters.jax`, which is handed the `WorkloadSpec`, because screens and compiles
run in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuner.layouts.layout import Candidate, Layout
from tuner.layouts.space import Space
from tuner.placements.placement import Placement
from tuner.program.program import Program
from tuner.rejections import Rejection
from tuner.slices.slice import Slice
from tuner.timings import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """How to find a workload again in another process.

    Attributes:
        model: a preset (``wan2.1-t2v-14b``) or ``package.module:attribute``.
        parameters: what the preset is asked for (``shape``, ``videos``, ``guidance``), JSON values only.
    """

    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSharding:
    """One argument leaf of the step and how a layout shards it.

    Attributes:
        path: the leaf's key path, for example ``params/blocks/attn1/to_q/kernel``.
        shape: global shape.
        dtype: NumPy name of the dtype, for example ``bfloat16``.
        spec: mesh axes of each dimension; an empty tuple where the dimension is not sharded.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]


class Workload(Protocol):
    """A step function with the parallel dimensions that it offers."""

    @property
    def name(self) -> str:
        """``model@shape+variant`` as `tuner.plans.workload` reads it, for example ``wan2.1-t2v-14b@832x480x81``."""

    @property
    def identity(self) -> Mapping[str, str]:
        """Declared identity: model, revision, configuration digest, shape, videos, guidance, dtypes."""

    @property
    def source(self) -> str:
        """A digest of the code that builds the step.

        It is part of what cached results are found by, so that an edit never meets the results of the code before it,
        and not of the identity, so that an edit that changes nothing does not outdate a plan.
        """

    @property
    def space(self) -> Space:
        """What may vary."""

    def verdict(self, layout: Layout) -> Rejection | None:
        """Returns why a layout is illegal (which dimension, which size, what would be legal), or None."""

    def baselines(self, slice_: Slice) -> Mapping[str, Layout]:
        """Returns layouts that people deploy today, by name; ``A`` is the one that plans are compared with."""

    def tuned(self, layout: Layout, slice_: Slice) -> Sequence[Layout]:
        """Returns a layout with every choice of what is tuned (kernel blocks) that fits, the most promising first.

        The layout enters the funnel as the first of them; an empty sequence leaves it as it is.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What a screen found out about a candidate without a compile.

    Attributes:
        program: facts of the per-device program: matrix products, collectives, loops. `Compute.cycles` is None.
        least_bytes: HBM bytes that any schedule must move: every argument byte that is used, as often as it must be
            read, and every output byte, written once.
        digest: of the lowered module; two candidates with one digest are one program.
    """

    program: Program
    least_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the compiler made of a candidate."""

    program: Program
    lowered_digest: str
    arguments: tuple[ArgumentSharding, ...]
    compile_s: float
    cached: bool = False


class Screener(Protocol):
    """Looks at candidates without a compile."""

    def screen(
        self, workload: WorkloadSpec, slice_: Slice, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Screened | Rejection]]:
        """Yields an outcome for every candidate, as they are ready."""


class Compiler(Protocol):
    """Compiles candidates ahead of time for a slice."""

    def compile(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        *,
        known: Callable[[str], bool] | None = None,
    ) -> Compiled | Rejection | None:
        """Returns the compiled program or the reason why there is none. Never raises for a candidate's fault.

        Args:
            workload: found again in the process that compiles.
            slice_: what to compile for.
            candidate: layout, compiler options, and the placement where the program depends on it.
            known: asked with the digest of the lowered program before the compile; if it says True the compile is left
                out and the result is None. The digest covers the compiler options.
        """


class Runner(Protocol):
    """Times candidates on attached devices."""

    def measure(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        *,
        enough: Callable[[Sequence[float]], bool],
    ) -> Measured | Rejection:
        """Returns the step times of a candidate in a placement, or why there are none.

        The answer is checked before anything is timed. Never raises for a candidate's fault: a hang, memory that runs
        out and a lost device are its end, and the next call starts afresh. A candidate that was measured before is
        neither compiled nor checked again as long as the devices are held.

        Args:
            workload: found again in the process that runs.
            slice_: what the devices must be; other devices raise.
            candidate: layout and compiler options.
            placement: which device of the slice sits at each mesh position.
            enough: asked with all samples so far after each of them; True ends the timing.
        """
