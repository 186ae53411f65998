"""What workers share beside leases: open studies to join, each other's trials, and candidates that break a compiler."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tuner.layouts.space import Choice, Dimension, Space
from tuner.plans.toolchain import Toolchain
from tuner.ports import WorkloadSpec
from tuner.search.settings import Settings

if TYPE_CHECKING:
    from tuner.stores import ContentKey, StudyKey, Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """How another process builds the search of a study.

    Attributes:
        study_id: the study.
        key_digest: of its key, so that a worker whose code makes another study of the workload notices.
        spec: its workload.
        slice_name: what it is laid out on.
        toolchain: that a worker must have.
        settings: of the search that opened it last.
        space: what may vary, so that the Optuna study can be rebuilt without the workload's code.
        open: whether workers should join; a search that ends by itself closes its study.
    """

    study_id: int
    key_digest: str
    spec: WorkloadSpec
    slice_name: str
    toolchain: Toolchain
    settings: Settings
    space: Space
    open: bool = True

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document without `study_id` and `open`."""
        return {
            "key": self.key_digest,
            "model": self.spec.model,
            "parameters": dict(self.spec.parameters),
            "slice": self.slice_name,
            "toolchain": self.toolchain.to_json(),
            "settings": self.settings.to_json(),
            "space": {
                "dimensions": [[d.name, list(d.sizes)] for d in self.space.dimensions],
                **{part: [[c.name, list(c.values)] for c in getattr(self.space, part)] for part in _CHOICES},
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, study_id: int, open: bool) -> Task:
        """Reads what `to_json` wrote."""
        space = document["space"]
        return cls(
            study_id=study_id,
            key_digest=document["key"],
            spec=WorkloadSpec(model=document["model"], parameters=document["parameters"]),
            slice_name=document["slice"],
            toolchain=Toolchain.from_json(document["toolchain"]),
            settings=Settings.from_json(document["settings"]),
            space=Space(
                dimensions=tuple(Dimension(name=name, sizes=tuple(sizes)) for name, sizes in space["dimensions"]),
                **{part: tuple(Choice(name=name, values=tuple(v)) for name, v in space[part]) for part in _CHOICES},
            ),
            open=open,
        )


_CHOICES = ("options", "tuned", "compiler")


def settled(stored: TrialState | None, trial: Trial) -> Trial | None:
    """Returns how a trial that ends is stored over one in state `stored`; None if that stays as it is.

    A trial that was given up for lost and returned to the queue keeps a late result as superseded; a trial that has
    ended ends once.
    """
    from tuner.stores import TrialState

    if stored in (None, TrialState.RUNNING):
        return trial
    if stored is not TrialState.INTERRUPTED or trial.state is TrialState.INTERRUPTED:
        return None
    return replace(trial, state=TrialState.SUPERSEDED)


class WorkStore(abc.ABC):
    """Open studies, the order in which their trials change, and aborts."""

    @abc.abstractmethod
    def publish(self, task: Task) -> None:
        """Stores how a study is worked on, replacing what was stored. Raises KeyError if there is no such study."""

    @abc.abstractmethod
    def tasks(self, *, open_only: bool = True) -> Sequence[Task]:
        """Returns the tasks of studies, the one that was published first at the front."""

    @abc.abstractmethod
    def close_task(self, study_id: int) -> None:
        """Tells workers to join the study no more; it does nothing if the study has no task."""

    @abc.abstractmethod
    def study_key(self, study_id: int) -> StudyKey:
        """Returns what a study optimises. Raises KeyError if there is no such study."""

    @abc.abstractmethod
    def changed_trials(self, study_id: int, after: int = 0) -> tuple[Sequence[Trial], int]:
        """Returns the trials written since `after`, in the order of their writes, and what to ask after next time.

        A write that this misses is not lost: it comes with the next call. Raises KeyError if there is no such study.
        """

    @abc.abstractmethod
    def end_trial(self, study_id: int, trial: Trial) -> Trial:
        """Stores a trial's end as `settled` says, and returns the trial as it stands then.

        Of several processes that end one trial at once, one does. Raises KeyError if there is no such study.
        """

    @abc.abstractmethod
    def count_abort(self, key: ContentKey, detail: str) -> int:
        """Counts that a candidate aborted the compiler; returns how often it has, over all workers."""
