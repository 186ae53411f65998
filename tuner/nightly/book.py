"""The book of a night: its report, stored after every step, so that a night that is killed has written what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from tuner.errors import InvalidValue, StoreError
from tuner.nightly.budgets import Budgets
from tuner.nightly.nights import NightState, NightStore
from tuner.nightly.report import Ending, EntryReport, NightReport
from tuner.nightly.staleness import Attempt

_TRIED = (Ending.PROMOTED, Ending.KEPT, Ending.IMPOSSIBLE, Ending.FAILED, Ending.INTERRUPTED)


class Book:
    """Keeps the report of a night that holds the lock.

    A database that is away costs nothing but the copy in it: the report goes on, and says so.
    """

    def __init__(
        self, store: NightStore, report: NightReport, *, budgets: Budgets, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._report = report
        self._budgets = budgets
        self._now = now
        self._id: int | None = None
        self.entries: dict[str, EntryReport] = {}

    def open(self) -> None:
        """Begins the night. Others that say they are running are dead, because this one holds the lock."""
        for night in self._store.nights():
            if night.state is NightState.RUNNING:
                self._store.save_night(
                    night.id,
                    state=NightState.DIED,
                    must_look=night.must_look,
                    started_at=night.started_at,
                    finished_at=None,
                    document={**night.document, "state": NightState.DIED.value},
                )
        self._save()

    def attempts(self) -> Mapping[str, Attempt]:
        """Returns the last attempt of earlier nights at each study, by its key's digest."""
        attempts: dict[str, Attempt] = {}
        for night in self._store.nights():
            try:
                report = NightReport.from_json(night.document)
            except InvalidValue:  # of a newer version; it tells us nothing
                continue
            for entry in report.entries:
                if entry.study and entry.ended_at is not None and entry.ending in _TRIED:
                    attempts.setdefault(entry.study, _attempt(entry, entry.ended_at))
        return attempts

    def write(self, entry: EntryReport) -> EntryReport:
        """Writes where an entry stands now, and stores it."""
        self.entries[entry.name] = entry
        self._save()
        return entry

    def close(self, state: NightState) -> NightReport:
        """Ends the night and returns its report."""
        self._report = replace(self._report, state=state, finished_at=self._now())
        self._save()
        return self._report

    def _save(self) -> None:
        self._report = replace(
            self._report,
            wall_spent_s=self._budgets.wall_spent_s,
            device_spent_s=self._budgets.device_spent_s,
            entries=tuple(self.entries.values()),
        )
        try:
            self._id = self._store.save_night(
                self._id,
                state=self._report.state,
                must_look=bool(self._report.alarms),
                started_at=self._report.started_at,
                finished_at=self._report.finished_at,
                document=self._report.to_json(),
            )
        except StoreError as error:
            problem = f"the report could not be stored: {error}"
            if problem not in self._report.problems:
                self._report = replace(self._report, problems=(*self._report.problems, problem))


def _attempt(entry: EntryReport, at: datetime) -> Attempt:
    return Attempt(finished=entry.finished, at=at, measured=entry.device_s > 0)
