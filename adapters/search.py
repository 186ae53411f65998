"""Puts a search together: workload, screener, compiler, store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import optuna

import storage
from adapters.jax.cache import cache_environment
from adapters.jax.pool import CompilePool
from adapters.jax.screen.pool import ShardyScreener
from adapters.measuring import NO_MEASUREMENT, Measurement, measuring
from adapters.models.registry import resolve
from tuner.calibration.calibration import calibration
from tuner.errors import ToolchainMissing
from tuner.network.cost import Degraded, Network
from tuner.plans.toolchain import Toolchain, installed_toolchain
from tuner.ports import WorkloadSpec
from tuner.search.events import Listener, silent
from tuner.search.funnel import Search
from tuner.search.outcome import Outcome
from tuner.search.settings import Settings
from tuner.slices.names import parse_slice


def tune(
    *,
    spec: WorkloadSpec,
    slice_name: str,
    db: str | None = None,
    settings: Settings | None = None,
    listener: Listener = silent,
    jobs: int | None = None,
    timeout_s: float = 600.0,
    measurement: Measurement = NO_MEASUREMENT,
    told: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Searches, stores every trial and promotes the best plan. Takes and raises what `opened` does."""
    with opened(
        spec=spec,
        slice_name=slice_name,
        db=db,
        settings=settings,
        listener=listener,
        jobs=jobs,
        timeout_s=timeout_s,
        measurement=measurement,
        told=told,
    ) as search:
        return search.run()


@contextmanager
def opened(
    *,
    spec: WorkloadSpec,
    slice_name: str,
    db: str | None = None,
    settings: Settings | None = None,
    listener: Listener = silent,
    jobs: int | None = None,
    timeout_s: float = 600.0,
    measurement: Measurement = NO_MEASUREMENT,
    told: Callable[[str], None] = lambda line: None,
) -> Iterator[Search]:
    """Opens the database and the processes that screen and compile, and gives the search.

    Args:
        spec: the workload.
        slice_name: for example ``v5e-2x4``.
        db: database URL; None for the default. It is created if it does not exist.
        settings: budget and behaviour.
        listener: is told what happens.
        jobs: compiles at once; None for one on each processor.
        timeout_s: time for one compile.
        measurement: whether and how the promising candidates are measured; by default they are not.
        told: is told why nothing was measured where that is no error.

    Raises UnknownName or InvalidValue for a wrong model, shape, slice or link, ToolchainMissing without jax and libtpu,
    StoreError if the database cannot be used, NotMeasured if devices are required and there are none.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    slice_ = parse_slice(slice_name)
    toolchain = required_toolchain()
    links = (settings or Settings()).constraints.links
    Network(slice_, calibration(slice_.generation_name), tuple(map(Degraded.parse, links)))  # refuses unknown links
    workload = resolve(spec)
    processors = len(os.sched_getaffinity(0))
    on_cpu = not slice_.generation.has_links
    jobs = jobs or processors  # a compile keeps about one processor busy
    with (
        storage.open_store(db, create=True) as store,
        ShardyScreener(workers=processors) as screener,
        CompilePool(
            workers=jobs,
            timeout_s=timeout_s,
            cpu_devices=slice_.num_devices if on_cpu else 1,
            # What is compiled for CPU devices is what runs on them, so the runner need not compile it again.
            environment=cache_environment(environ=os.environ) if on_cpu else None,
        ) as compiler,
        measuring(
            measurement,
            slice_,
            store,
            lambda: storage.optuna_storage(db),
            listener=listener,
            told=told,
            before=compiler.rest,
        ) as measure,
    ):
        yield Search(
            workload=workload,
            spec=spec,
            slice_=slice_,
            toolchain=toolchain,
            screener=screener,
            compiler=compiler,
            store=store,
            optuna_storage=storage.optuna_storage(db),
            measure=measure,
            settings=settings,
            listener=listener,
            jobs=jobs,
        )


def required_toolchain() -> Toolchain:
    """Returns the installed toolchain. Raises ToolchainMissing if it cannot compile."""
    toolchain = installed_toolchain()
    if not toolchain.jax or not toolchain.libtpu:
        absent = " and ".join(name for name in ("jax", "libtpu") if not getattr(toolchain, name))
        raise ToolchainMissing(f"{absent} not installed; the compiler comes with: pip install 'meshwright[tpu]'")
    return toolchain
