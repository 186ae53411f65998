"""Puts a worker together: the database, the processes that screen and compile, and the search of each open study."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import optuna

import storage
from adapters.jax.pool import CompilePool
from adapters.jax.screen.pool import ShardyScreener
from adapters.measuring import Measurement, When, measuring, missing_devices
from adapters.models.registry import resolve
from adapters.search import required_toolchain
from tuner.calibration.records import constants
from tuner.errors import InvalidValue
from tuner.plans.plan import Evidence
from tuner.plans.toolchain import Toolchain
from tuner.ports import Compiler, Screener, Workload, WorkloadSpec
from tuner.search.crew import TTL_S
from tuner.search.events import Listener, silent
from tuner.search.funnel import Search
from tuner.search.measure import Measure
from tuner.search.revision import study_key
from tuner.search.worker import Worker
from tuner.slices.names import parse_slice
from tuner.stores import Store
from tuner.work import Task

_REQUIRED = Measurement(when=When.REQUIRE)


def work(
    *,
    db: str | None = None,
    listener: Listener = silent,
    told: Callable[[str], None],
    jobs: int | None = None,
    timeout_s: float = 600.0,
    once: bool = False,
    idle_s: float | None = None,
) -> int:
    """Screens, compiles and places for open studies; returns how many times it joined one.

    Args:
        db: database URL; None for the default. It must exist.
        listener: is told what each search does.
        told: is told in a line which study it joins.
        jobs: compiles at once; None for one on each processor.
        timeout_s: time for one compile.
        once: ends as soon as no study is open.
        idle_s: ends when no study has been open for so many seconds; None to wait for ever.

    Raises ToolchainMissing without jax and libtpu, StoreError if the database cannot be used, KeyboardInterrupt if it
    is told to stop, with everything that it held returned.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    toolchain = required_toolchain()
    processors = len(os.sched_getaffinity(0))
    jobs = jobs or processors
    with (
        storage.open_store(db) as store,
        ShardyScreener(workers=processors) as screener,
        CompilePool(workers=jobs, timeout_s=timeout_s) as compiler,
    ):
        serve = searching(
            store,
            storage.optuna_storage(db),
            toolchain=toolchain,
            resolve=resolve,
            screener=screener,
            compiler=compiler,
            listener=listener,
            jobs=jobs,
        )
        return Worker(store, serve, fits=compiles_with(toolchain), told=told, once=once, idle_s=idle_s).run()


def measure(
    *,
    db: str | None = None,
    how: Measurement = _REQUIRED,
    listener: Listener = silent,
    told: Callable[[str], None],
    once: bool = False,
    idle_s: float | None = None,
) -> int:
    """Measures for studies whose search has ended, on the devices of this host; returns how many it measured for.

    A study wants it as long as its active plan is a prediction. Nothing is searched here: compiling is for hosts that
    cost less. Takes and raises what `work` does; `how` says how to measure.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    toolchain = required_toolchain()
    with storage.open_store(db) as store:

        def serve(task: Task) -> None:
            slice_ = parse_slice(task.slice_name)
            open_optuna = partial(storage.optuna_storage, db)
            with (
                ShardyScreener(workers=1) as screener,
                CompilePool(
                    workers=1, cpu_devices=1 if slice_.generation.has_links else slice_.num_devices
                ) as compiler,
                measuring(
                    how, slice_, store, open_optuna, listener=listener, told=told, before=compiler.rest
                ) as on_devices,
            ):
                searching(
                    store,
                    open_optuna(),
                    toolchain=toolchain,
                    resolve=resolve,
                    screener=screener,
                    compiler=compiler,
                    listener=listener,
                    measure=on_devices,
                )(task)

        def tasks() -> list[Task]:
            return [task for task in store.tasks(open_only=False) if not task.open and wants_measuring(store, task)]

        def fits(task: Task) -> str:
            missing = "" if how.runner else missing_devices(parse_slice(task.slice_name))
            return compiles_with(toolchain)(task) or missing

        return Worker(store, serve, tasks=tasks, fits=fits, told=told, once=once, idle_s=idle_s).run()


def wants_measuring(store: Store, task: Task) -> bool:
    """Returns whether what a study's search has found is in service on a prediction alone."""
    active = store.active(store.study_key(task.study_id))
    return active is not None and active.plan.evidence is Evidence.PREDICTED


def searching(
    store: Store,
    optuna_storage: optuna.storages.BaseStorage,
    *,
    toolchain: Toolchain,
    resolve: Callable[[WorkloadSpec], Workload],
    screener: Screener,
    compiler: Compiler,
    listener: Listener = silent,
    measure: Measure | None = None,
    jobs: int = 1,
    lease_ttl_s: float = TTL_S,
) -> Callable[[Task], None]:
    """Returns what runs the search of a study together with whoever else is at it.

    Of a study that is closed it only measures, if it has something to `measure` with.
    """

    def serve(task: Task) -> None:
        workload, slice_ = resolve(task.spec), parse_slice(task.slice_name)
        known = constants(store, slice_.generation_name, toolchain)
        key = study_key(workload, slice_, toolchain, task.settings.constraints, known)
        if key.digest != task.key_digest:
            raise InvalidValue("its code or our model is another version here and makes another study of it")
        outcome = Search(
            workload=workload,
            spec=task.spec,
            slice_=slice_,
            toolchain=toolchain,
            screener=screener,
            compiler=compiler,
            store=store,
            optuna_storage=optuna_storage,
            settings=task.settings,
            listener=listener,
            measure=measure,
            jobs=jobs,
            joined=True,
            lease_ttl_s=lease_ttl_s,
        ).run()
        if outcome.interrupted:
            raise KeyboardInterrupt

    return serve


def compiles_with(toolchain: Toolchain) -> Callable[[Task], str]:
    """Returns what says why a study is not for a toolchain: each study's programs are of one."""

    def fits(task: Task) -> str:
        differences = task.toolchain.fingerprint.differences(toolchain.fingerprint)
        return f"it is of another toolchain: {'; '.join(differences)}" if differences else ""

    return fits
