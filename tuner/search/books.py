"""Bringing Optuna's studies in order from our tables, which are the truth, without a workload and without its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import optuna

from tuner.heartbeat import Heartbeat
from tuner.plans.plan import Evidence
from tuner.search.ledger import Ledger
from tuner.search.parameters import Parameters
from tuner.search.sampler import DecidedSampler
from tuner.stores import Store, Study
from tuner.work import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What became of one study: how many of its trials were mended, or why it was left as it is."""

    study: str
    mended: int = 0
    rebuilt: bool = False
    left: str = ""


def reconcile(store: Store, optuna_storage: optuna.storages.BaseStorage, *, rebuild: bool = False) -> Iterator[Mended]:
    """Mends every study in turn and yields what became of it.

    A study that disagrees with our tables in what it says of a trial, and every study with `rebuild`, is made anew from
    them. One that workers are at is left to them: they keep it in order.
    """
    tasks = {task.study_id: task for task in store.tasks(open_only=False)}
    for study in store.studies():
        task = tasks.get(study.id)
        if study.key.evidence is not Evidence.PREDICTED:
            continue
        if task is None:
            yield Mended(study=study.key.name, left="it was never opened by a version that notes what it searches")
            continue
        with Heartbeat(store) as heartbeat:
            if store.leases(f"worker/{study.id}/") or heartbeat.claim(f"study/{study.id}") is None:
                yield Mended(study=study.key.name, left="workers are at it, who keep it in order")
            else:
                yield _mend(store, optuna_storage, study, task, rebuild=rebuild)


def _mend(
    store: Store, optuna_storage: optuna.storages.BaseStorage, study: Study, task: Task, *, rebuild: bool
) -> Mended:
    ledger = _ledger(store, optuna_storage, study, task)
    mended = ledger.reconcile()
    if not rebuild and ledger.agrees():
        return Mended(study=study.key.name, mended=mended)
    optuna.delete_study(study_name=study.key.name, storage=optuna_storage)
    return Mended(study=study.key.name, mended=_ledger(store, optuna_storage, study, task).reconcile(), rebuilt=True)


def _ledger(store: Store, optuna_storage: optuna.storages.BaseStorage, study: Study, task: Task) -> Ledger:
    optuna_study = optuna.create_study(
        study_name=study.key.name,
        storage=optuna_storage,
        direction="minimize",
        sampler=DecidedSampler(),
        load_if_exists=True,
    )
    return Ledger(store, study, optuna_study, optuna_storage, Parameters(task.space))
