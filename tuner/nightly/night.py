"""One night: plans of another toolchain are re-checked, then everything that is due is searched, as far as budgets go.

Nothing that an entry does ends the night. Every step is stored when it is done, so a night that is stopped or killed
loses what it was at and nothing else.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tuner.nightly.book import Book
from tuner.nightly.budgets import Budgets
from tuner.nightly.desk import Desk
from tuner.nightly.events import Begun, Ended, NightListener, Surveyed, silent
from tuner.nightly.matrix import Entry, Matrix
from tuner.nightly.nights import NightState
from tuner.nightly.order import Task, rechecks, searches
from tuner.nightly.recheck import compare, refused
from tuner.nightly.report import Ending, EntryReport, NightReport, Recheck
from tuner.nightly.results import comparable_s, how_it_ended, in_service, is_finished, untouched, what_ended_it
from tuner.nightly.staleness import Due, standing
from tuner.plans.plan import StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.search.events import TrialEnded
from tuner.search.settings import Settings
from tuner.stores import Store


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Night:
    """One night. Build it, `run` it once.

    Args:
        matrix: what to tune.
        desk: compiles.
        store: keeps plans, trials and the report.
        toolchain: that the desk compiles with.
        listener: is told what happens.
        displaced: asked at every event whether another night may have begun; then this one stops.
        clock: monotonic, in seconds.
        now: the time.
    """

    def __init__(
        self,
        matrix: Matrix,
        *,
        desk: Desk,
        store: Store,
        toolchain: Toolchain,
        listener: NightListener = silent,
        displaced: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._matrix = matrix
        self._desk = desk
        self._store = store
        self._listener = listener
        self._displaced = displaced
        self._clock = clock
        self._now = now
        self._compiled = 0
        self._budgets = Budgets(wall_s=matrix.budget_s, device_s=matrix.device_budget_s, clock=clock, started=clock())
        report = NightReport(
            state=NightState.RUNNING,
            started_at=now(),
            host=platform.node(),
            toolchain=str(toolchain),
            wall_limit_s=matrix.budget_s,
            device_limit_s=matrix.device_budget_s,
            alarm=matrix.alarm,
        )
        self._book = Book(store, report, budgets=self._budgets, now=now)

    def run(self) -> NightReport:
        """Runs the night. On KeyboardInterrupt what was found is stored, and the report returns."""
        state = NightState.DIED  # by an error that is a bug
        try:
            self._book.open()
            state = self._go_through(self._survey())
        except KeyboardInterrupt:
            state = NightState.DISPLACED if self._displaced() else NightState.INTERRUPTED
        finally:
            report = self._book.close(state)
        return report

    def preview(self) -> Sequence[EntryReport]:
        """Returns where every entry stands, in the order in which `run` would search them, and changes nothing."""
        due = [self._book.entries[task.entry.name] for task in searches(self._survey())]
        return [*due, *(report for report in self._book.entries.values() if report not in due)]

    def _survey(self) -> Sequence[Task]:
        """Finds out where every entry stands; one that cannot even be named has failed."""
        attempts = self._book.attempts()
        studies = {study.key.digest: study for study in self._store.studies()}
        plans: dict[str, Sequence[StoredPlan]] = {}
        tasks = []
        for entry in self._matrix.entries:
            try:
                key = self._desk.key(entry)
            except Exception as error:
                report = _failed(EntryReport(name=entry.name, due=Due.MISSING, why="", ending=Ending.FAILED), error)
                self._book.entries[entry.name] = replace(report, ended_at=self._now())
                self._tell(Ended(report=report, recheck=False, error=error))
                continue
            model = key.workload.model
            if model not in plans:
                plans[model] = self._store.plans(model=model)
            found = standing(
                key,
                study=studies.get(key.digest),
                plans=plans[model],
                last=attempts.get(key.digest),
                now=self._now(),
                budget_s=entry.budget_s,
                refresh_s=self._matrix.refresh_s,
                measurable=self._desk.measures(entry) and self._budgets.device_for(entry.device_budget_s) != 0,
            )
            tasks.append(Task(entry=entry, key=key, standing=found))
            self._book.entries[entry.name] = untouched(tasks[-1])
        due = sum(task.standing.due is not Due.FRESH for task in tasks)
        self._tell(Surveyed(entries=len(self._matrix.entries), due=due, to_recheck=len(rechecks(tasks))))
        return tasks

    def _go_through(self, tasks: Sequence[Task]) -> NightState:
        stale = rechecks(tasks)
        for number, task in enumerate(stale, start=1):
            if not self._budgets.spent:
                self._begin(task, recheck=True, number=number, total=len(stale))
                self._recheck(task)
        slower = [name for name, report in self._book.entries.items() if _is_slower(report.recheck)]
        due, left = searches(tasks, slower), 0
        for number, task in enumerate(due, start=1):
            if self._budgets.spent:
                left += 1
            else:
                self._begin(task, recheck=False, number=number, total=len(due))
                self._search(task)
        unfinished = any(not self._book.entries[task.entry.name].finished for task in due)
        return NightState.OUT_OF_TIME if left or (unfinished and self._budgets.spent) else NightState.COMPLETE

    def _recheck(self, task: Task) -> None:
        """Compiles and ranks a former winner again; where there is no plan under this toolchain, it becomes that."""
        entry, former = task.entry, task.standing.to_recheck
        assert former is not None
        report, started = self._book.entries[entry.name], self._clock()
        try:
            outcome = self._desk.recheck(entry, former.plan.candidate, self._settings(entry), self._tell)
            found = compare(self._store, former, task.key, outcome)
        except KeyboardInterrupt:
            self._interrupted(report, started)
            raise
        except Exception as error:
            self._after_recheck(
                replace(report, recheck=refused(former, task.key, f"the re-check failed: {_text(error)}")),
                started,
                error,
            )
            return
        ending = Ending.PROMOTED if outcome.promoted else report.ending
        self._after_recheck(replace(report, recheck=found, ending=ending, **in_service(outcome.plan)), started)

    def _after_recheck(self, report: EntryReport, started: float, error: Exception | None = None) -> None:
        detail = "it was re-checked; the night ended before its search"
        ended = replace(report, detail=detail, wall_s=self._clock() - started, ended_at=self._now())
        self._tell(Ended(report=self._book.write(ended), recheck=True, error=error))

    def _search(self, task: Task) -> None:
        entry = task.entry
        report, started, compiled = self._book.entries[entry.name], self._clock(), self._compiled
        # What stands in the book while it runs is what stays there if the night is killed.
        self._book.write(replace(report, ending=Ending.INTERRUPTED, detail="it was cut off", ended_at=self._now()))
        try:
            settings = replace(
                self._settings(entry),
                # A study's budget is of all its runs.
                budget_s=self._store.open_study(task.key).spent_s + self._budgets.wall_for(entry.budget_s),
                max_trials=entry.max_trials,
                sampler=entry.sampler,
            )
            searched = self._desk.search(entry, settings, self._budgets.device_for(entry.device_budget_s), self._tell)
        except KeyboardInterrupt:
            self._interrupted(report, started)
            raise
        except Exception as error:
            failed = replace(report, wall_s=report.wall_s + self._clock() - started, ended_at=self._now())
            self._tell(Ended(report=self._book.write(_failed(failed, error)), recheck=False, error=error))
            return
        outcome = searched.outcome
        self._budgets.device_spent_s += searched.device_s
        ended = replace(
            report,
            ending=how_it_ended(report, outcome),
            detail="; ".join(filter(None, (what_ended_it(outcome), searched.note))),
            compiled=self._compiled - compiled,
            proved=outcome.proved,
            finished=is_finished(outcome, entry),
            wall_s=report.wall_s + self._clock() - started,
            device_s=searched.device_s,
            ended_at=self._now(),
            before_s=comparable_s(task.standing.active, outcome.plan),
            **in_service(outcome.plan),
        )
        self._tell(Ended(report=self._book.write(ended), recheck=False))
        if outcome.interrupted:
            raise KeyboardInterrupt

    def _settings(self, entry: Entry) -> Settings:
        # Another seed each night, so that devices are asked for another random candidate.
        return Settings(constraints=entry.constraints, margin=self._matrix.margin, seed=self._now().toordinal())

    def _begin(self, task: Task, *, recheck: bool, number: int, total: int) -> None:
        why = task.standing.reason
        self._tell(Begun(name=task.entry.name, why=why, recheck=recheck, number=number, total=total))

    def _tell(self, event: Any) -> None:
        if isinstance(event, TrialEnded) and not event.cached:
            self._compiled += 1
        # A terminal that went away ends no night; rich leaves with SystemExit then.
        with contextlib.suppress(OSError, SystemExit):
            self._listener(event)
        if self._displaced():
            raise KeyboardInterrupt

    def _interrupted(self, report: EntryReport, started: float) -> None:
        spent_s = report.wall_s + self._clock() - started
        self._book.write(
            replace(
                report, ending=Ending.INTERRUPTED, detail="it was told to stop", wall_s=spent_s, ended_at=self._now()
            )
        )


def _failed(report: EntryReport, error: Exception) -> EntryReport:
    return replace(report, ending=Ending.FAILED, detail=_text(error), finished=False)


def _is_slower(check: Recheck | None) -> bool:
    return check is not None and (check.loss is None or check.loss > 0)


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
