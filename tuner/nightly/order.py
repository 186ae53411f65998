"""In which order a night goes through its entries. Re-checks come before all searches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.nightly.matrix import Entry
from tuner.nightly.staleness import Due, Standing
from tuner.stores import StudyKey

_NEVER = datetime.min.replace(tzinfo=UTC)
_URGENCY = {due: rank for rank, due in enumerate(Due)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An entry, the key of its study, and where it stands."""

    entry: Entry
    key: StudyKey
    standing: Standing


def rechecks(tasks: Iterable[Task]) -> Sequence[Task]:
    """Returns the tasks whose plan is of another toolchain, by priority."""
    return sorted((task for task in tasks if task.standing.to_recheck is not None), key=lambda t: -t.entry.priority)


def searches(tasks: Iterable[Task], regressed: Iterable[str] = ()) -> Sequence[Task]:
    """Returns the tasks that are due: by priority, then by urgency, then those first that waited longest.

    Args:
        tasks: in the order of the file, which decides among equals.
        regressed: names of entries whose re-checked plan became slower; they go before others that are stale.
    """
    slower = set(regressed)

    def key(task: Task) -> tuple[int, int, bool, datetime]:
        last = task.standing.last
        return (
            -task.entry.priority,
            _URGENCY[task.standing.due],
            task.entry.name not in slower,
            _NEVER if last is None else last.at,
        )

    return sorted((task for task in tasks if task.standing.due is not Due.FRESH), key=key)
