"""Many finished trials into Optuna's tables at once. Optuna writes one in a transaction, its parameters one by one.

What is written is what Optuna writes (schema ``v3.2.0.a``, of Optuna 3.2 to 5.0); tests compare the two row by row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import MetaData, Table, func, insert, select

_TABLES = ("studies", "trials", "trial_params", "trial_values", "trial_intermediate_values", "trial_user_attributes")
_AT_ONCE = 1000


class BatchRDBStorage(RDBStorage):
    """Optuna's storage with a way to create many trials in one transaction."""

    @cached_property
    def _tables(self) -> dict[str, Table]:
        metadata = MetaData()
        metadata.reflect(self.engine, only=_TABLES)
        return {name: metadata.tables[name] for name in _TABLES}

    def create_new_trials(self, study_id: int, templates: Sequence[FrozenTrial]) -> list[int]:
        """Creates finished trials of a study with one objective and returns their numbers.

        Raises KeyError if there is no such study. Each thousand is one transaction.
        """
        numbers: list[int] = []
        for at in range(0, len(templates), _AT_ONCE):
            numbers += self._create(study_id, templates[at : at + _AT_ONCE])
        return numbers

    def _create(self, study_id: int, templates: Sequence[FrozenTrial]) -> list[int]:
        tables = self._tables
        studies, trials = tables["studies"], tables["trials"]
        with self.engine.begin() as connection:
            # As Optuna does: whoever holds the study's row numbers its trials.
            row = select(studies.c.study_id).where(studies.c.study_id == study_id).with_for_update()
            if connection.execute(row).first() is None:
                raise KeyError(f"no Optuna study {study_id}")
            counted = select(func.count()).select_from(trials).where(trials.c.study_id == study_id)
            first = connection.execute(counted).scalar_one()
            numbers = list(range(first, first + len(templates)))
            created = insert(trials).returning(trials.c.trial_id, sort_by_parameter_order=True)
            ids = connection.execute(
                created,
                [
                    {
                        "number": number,
                        "study_id": study_id,
                        "state": template.state.name,
                        "datetime_start": _utc(template.datetime_start),
                        "datetime_complete": _utc(template.datetime_complete),
                    }
                    for number, template in zip(numbers, templates, strict=True)
                ],
            ).scalars()
            rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES[2:]}
            for trial_id, template in zip(ids, templates, strict=True):
                for name, row_of in _rows(template):
                    rows[name].append({"trial_id": trial_id, **row_of})
            for name, written in rows.items():
                if written:
                    connection.execute(insert(tables[name]), written)
        return numbers


def _rows(trial: FrozenTrial) -> list[tuple[str, dict[str, Any]]]:
    """Returns the rows of a trial beside its own: the table of each, and its columns."""
    rows: list[tuple[str, dict[str, Any]]] = []
    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        rows.append(
            (
                "trial_params",
                {
                    "param_name": name,
                    "param_value": distribution.to_internal_repr(value),
                    "distribution_json": distribution_to_json(distribution),
                },
            )
        )
    rows += [
        ("trial_user_attributes", {"key": key, "value_json": json.dumps(value)})
        for key, value in trial.user_attrs.items()
    ]
    if trial.value is not None:
        rows.append(("trial_values", {"objective": 0, **_number("value", trial.value)}))
    rows += [
        ("trial_intermediate_values", {"step": step, **_number("intermediate_value", value)})
        for step, value in trial.intermediate_values.items()
    ]
    return rows


def _number(column: str, value: float) -> dict[str, Any]:
    """Returns a number as Optuna stores it, which databases without infinities take."""
    if value == float("inf"):
        return {column: None, f"{column}_type": "INF_POS"}
    if value == float("-inf"):
        return {column: None, f"{column}_type": "INF_NEG"}
    if value != value:
        return {column: None, f"{column}_type": "NAN"}
    return {column: value, f"{column}_type": "FINITE"}


def _utc(time: datetime | None) -> datetime | None:
    """Returns a naive local time, as Optuna's trials have it, as the naive UTC time that it stores."""
    return None if time is None else time.astimezone(UTC).replace(tzinfo=None)
