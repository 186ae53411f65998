"""Timing steps on the devices of this process: compile, check the answer, warm up, then blocks of steps.

A device may be lost and a step may hang, so a search measures through `adapters.jax.runner`, which runs this in a
process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax

from adapters.jax.answer import Checked, Reference, all_finite, not_finite, reduced
from adapters.jax.cache import unless_unsafe
from adapters.jax.compile import compiler_options, platform
from adapters.jax.failures import not_run
from adapters.jax.hosts import Alone, Cluster
from adapters.jax.inputs import filler
from adapters.jax.live import WrongDevices, place_on
from adapters.jax.step import JaxWorkload, Step
from adapters.jax.topologies import auto_mesh
from tuner.errors import ToolchainMissing
from tuner.layouts.layout import Candidate
from tuner.placements.placement import Placement
from tuner.rejections import Rejection
from tuner.slices.slice import Slice

BLOCK_S = 0.1
"""Steps are joined to blocks of about this length, beside which a wait for the device is short."""

MOST_STEPS = 50
LEAST_WARMUP, MOST_WARMUP, WARMUP_S = 3, 10, 5.0
SETTLED = 0.1
"""Warm-up ends when the last three steps differ by no more than this share."""

T = TypeVar("T")

_HIT = "/jax/compilation_cache/cache_hits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How the samples of `Bench.time` came about; the samples themselves are handed out one by one."""

    steps: int
    warmup: int
    compile_s: float
    warm: bool
    donated: bool
    difference: float | None
    unchecked: str
    trace: str


@dataclass(slots=True, kw_only=True)
class _Prepared:
    step: Step
    run: Any
    fill: Callable[[], tuple[Any, ...]]
    compile_s: float
    warm: bool
    feeds: bool
    checked: Checked = field(default_factory=Checked)


class Bench:
    """Times candidates on the attached devices, one at a time.

    Executables stay, arguments do not: finalists that are timed in turns never lie in memory together.

    Args:
        cluster: the other hosts, which do the same at the same time.
    """

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Alone()
        self._prepared: dict[tuple[str, str, str], _Prepared] = {}
        self._references: dict[str, Reference] = {}
        self._hits = 0
        jax.monitoring.register_event_listener(self._event)

    def time(
        self,
        workload: JaxWorkload,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        on_sample: Callable[[float], bool],
        *,
        trace: str = "",
    ) -> Timing | Rejection:
        """Times a candidate until `on_sample`, which gets the seconds of a step for each block, returns False.

        Args:
            workload: builds the step.
            slice_: what the devices must be.
            candidate: layout and compiler options.
            placement: device of the slice for each mesh position.
            on_sample: is called between blocks.
            trace: a directory for the profiler's trace of one more block; empty for none.

        Raises WrongDevices if the attached devices are not the slice, and what building the workload raises.
        """
        key = slice_.name, workload.name + workload.source, candidate.digest + str(placement.devices)
        known = self._prepared.get(key)
        if known is None:
            prepared = self._prepare(workload, slice_, candidate, placement)
            if isinstance(prepared, Rejection):
                return prepared
            self._prepared[key] = prepared
        else:
            prepared = known
        try:
            return self._run(prepared, on_sample, trace, warm=prepared.warm or known is not None)
        finally:
            jax.clear_caches()  # of small programs; the executable is held by `prepared`

    def _prepare(
        self, workload: JaxWorkload, slice_: Slice, candidate: Candidate, placement: Placement
    ) -> _Prepared | Rejection:
        devices = jax.devices()
        if slice_.generation.has_links and all(device.platform == "cpu" for device in devices):
            raise WrongDevices(f"{slice_.name} cannot be measured on CPU devices; attached are {len(devices)} of them")
        mesh = auto_mesh(place_on(devices, slice_, placement.devices), candidate.layout)
        options, kind = compiler_options(slice_, candidate), platform(slice_)

        def compiled(what: JaxWorkload) -> _Prepared:
            step, hits = what.step(candidate.layout, mesh, kernels=True), self._hits
            started = time.monotonic()
            run = step.lower(kind).compile(compiler_options=options or None)
            took = time.monotonic() - started
            return _Prepared(
                step=step,
                run=run,
                fill=filler(step.arguments),
                compile_s=took,
                warm=self._hits > hits,
                feeds=_feeds(step, run),
            )

        def check(full: _Prepared) -> Checked:
            small = reduced(workload)
            # A workload that is its own reduced form is checked with the very executable that is timed.
            part = full if small == workload else compiled(small)
            result = part.run(*part.fill())
            reference = self._references.setdefault(kind, Reference(kind))
            return reference.check(small, candidate.layout, result, part.step)

        with unless_unsafe(list(mesh.devices.flat), devices):
            full = self._together(lambda: compiled(workload))
            if isinstance(full, Rejection):
                return full
            checked = self._together(lambda: check(full))
        if isinstance(checked, Rejection):
            return checked
        wrong = self._cluster.agree(checked.wrong)
        if wrong is not None:
            return wrong
        full.checked = checked
        return full

    def _run(
        self, prepared: _Prepared, on_sample: Callable[[float], bool], trace: str, *, warm: bool
    ) -> Timing | Rejection:
        started = self._together(lambda: _Running(prepared))
        if isinstance(started, Rejection):
            return started
        running = started
        finite = self._cluster.agree(None if all_finite(running.result) else not_finite())
        if finite is not None:
            return finite
        # Every host must make the same number of steps; how many follows from process 0's clock.
        warmed = self._together(lambda: self._warm_up(running))
        if isinstance(warmed, Rejection):
            return warmed
        step_s, warmup = warmed
        steps = int(self._cluster.decide(min(MOST_STEPS, max(1, round(BLOCK_S / step_s)))))
        while True:
            sample = self._together(lambda: running.block(steps))
            if isinstance(sample, Rejection):
                return sample
            if not self._cluster.decide(int(self._cluster.leads and on_sample(sample))):
                break
        if trace:
            with jax.profiler.trace(trace):
                running.block(steps)
        return Timing(
            steps=steps,
            warmup=warmup,
            compile_s=prepared.compile_s,
            warm=warm,
            donated=not prepared.step.donate or prepared.feeds,
            difference=prepared.checked.difference,
            unchecked=prepared.checked.unchecked,
            trace=trace,
        )

    def _warm_up(self, running: _Running) -> tuple[float, int]:
        """Returns the seconds of a step, and after how many steps these had settled."""
        last: list[float] = []
        going = True
        started = time.monotonic()
        while going:
            last.append(running.block(1))
            recent = last[-3:]
            settled = len(last) >= LEAST_WARMUP and max(recent) <= (1 + SETTLED) * min(recent)
            late = len(last) >= MOST_WARMUP or time.monotonic() - started > WARMUP_S
            going = bool(self._cluster.decide(int(not settled and not late)))
        return min(last[-3:]), len(last)

    def _together(self, work: Callable[[], T]) -> T | Rejection:
        """Does one's own part; returns a rejection if that, or any other host's, failed."""
        try:
            done: T | None = work()
            own = None
        except (WrongDevices, ToolchainMissing):
            raise
        except Exception as error:  # whatever a candidate's code, JAX or the devices say is its end
            done, own = None, not_run(error)
        failed = self._cluster.agree(own)
        if failed is not None:
            return failed
        return done  # type: ignore[return-value]

    def _event(self, name: str, **_: Any) -> None:
        self._hits += name == _HIT


class _Running:
    """A step with its arguments on the devices."""

    def __init__(self, prepared: _Prepared) -> None:
        self._prepared = prepared
        self._arguments = list(prepared.fill())
        self.result: Any = None
        self.block(1)

    def block(self, steps: int) -> float:
        """Returns the mean seconds of some steps, each begun before the one before has ended."""
        prepared = self._prepared
        if prepared.step.donate and not prepared.feeds:
            return self._one_by_one(steps)
        started = time.perf_counter()
        for _ in range(steps):
            self.result = prepared.run(*self._arguments)
            if prepared.feeds:
                self._arguments[prepared.step.donate[0]] = self.result
        jax.block_until_ready(self.result)
        return (time.perf_counter() - started) / steps

    def _one_by_one(self, steps: int) -> float:
        """Makes what a step takes away before each step, outside of the time."""
        total = 0.0
        for _ in range(steps):
            jax.block_until_ready(self._arguments)
            started = time.perf_counter()
            self.result = jax.block_until_ready(self._prepared.run(*self._arguments))
            total += time.perf_counter() - started
            self._arguments = list(self._prepared.fill())
        return total / steps


def _feeds(step: Step, run: Any) -> bool:
    """Returns whether the result can be the next step's donated argument, as in a loop of denoising steps."""
    if len(step.donate) != 1:
        return False
    taken = jax.tree.leaves(step.arguments[step.donate[0]])
    given, shardings = jax.tree.leaves(run.out_info), jax.tree.leaves(run.output_shardings)
    same_tree = jax.tree.structure(step.arguments[step.donate[0]]) == jax.tree.structure(run.out_info)
    return same_tree and all(
        t.shape == g.shape and t.dtype == g.dtype and s.is_equivalent_to(t.sharding, len(t.shape))
        for t, g, s in zip(taken, given, shardings, strict=True)
    )
