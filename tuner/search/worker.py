"""A worker: joins open studies, one after the other, for as long as it is wanted."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tuner.errors import StoreError, TunerError
from tuner.stores import Store
from tuner.work import Task

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two looks for work."""

MOST_FAILURES = 30
"""So many looks in a row may find the database out of order before the worker gives up."""


class Worker:
    """Serves the open studies that have the fewest workers first.

    Args:
        store: with the studies.
        serve: does what is to be done for a study and returns when there is no more.
        tasks: returns the studies to serve; None for the open ones.
        fits: returns why this worker cannot serve a study, or an empty text.
        once: ends as soon as no study is open.
        idle_s: ends when no study has been open for so many seconds; None to wait for ever.
        told: is told in a line what goes on.
        clock: monotonic, in seconds.
        pause: sleeps so many seconds.
    """

    def __init__(
        self,
        store: Store,
        serve: Callable[[Task], None],
        *,
        tasks: Callable[[], Sequence[Task]] | None = None,
        fits: Callable[[Task], str] = lambda task: "",
        once: bool = False,
        idle_s: float | None = None,
        told: Callable[[str], None] = log.info,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._serve = serve
        self._tasks = tasks or store.tasks
        self._fits = fits
        self._once = once
        self._idle_s = idle_s
        self._told = told
        self._clock = clock
        self._pause = pause
        self._left: dict[int, Task] = {}

    def run(self) -> int:
        """Works until told to stop (KeyboardInterrupt passes) or idle; returns how many times it joined a study.

        A study that cannot be served here is left to others, until it is opened anew. Raises StoreError if the database
        stays out of order.
        """
        joined = failures = 0
        idle_since, last = self._clock(), None
        while True:
            try:
                task = self._next()
                if task is not None:
                    if task == last:  # it is still open: whoever is at it needs no hurry from here
                        self._pause(LOOK_S)
                    joined, last = joined + 1, task
                    self._join(task)
                    idle_since = self._clock()
                failures = 0
            except StoreError as error:
                failures += 1
                if failures >= MOST_FAILURES:
                    raise
                self._told(f"the database is out of order, trying again: {error}")
                self._pause(LOOK_S)
                continue
            if task is None:
                idle = self._clock() - idle_since
                if self._once or (self._idle_s is not None and idle >= self._idle_s):
                    return joined
                self._pause(LOOK_S)

    def _next(self) -> Task | None:
        tasks = [task for task in self._tasks() if self._left.get(task.study_id) != task]
        if not tasks:
            return None
        workers = Counter(lease.resource.split("/")[1] for lease in self._store.leases("worker/"))
        return min(tasks, key=lambda task: workers[str(task.study_id)])

    def _join(self, task: Task) -> None:
        name = f"study {task.study_id}, {task.spec.model} on {task.slice_name}"
        reason = self._fits(task)
        if reason:
            self._left[task.study_id] = task
            self._told(f"{name}: left to others, {reason}")
            return
        self._told(f"{name}: joined")
        try:
            self._serve(task)
        except StoreError:
            raise
        except (TunerError, ImportError) as error:
            self._left[task.study_id] = task
            self._told(f"{name}: left to others, {error}")
        else:
            self._told(f"{name}: nothing more to do")
