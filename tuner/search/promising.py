"""Which predicted candidates are worth a device's time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.layouts.layout import Candidate
from tuner.placements.default import jax_default
from tuner.placements.placement import Placement
from tuner.plans.plan import Plan
from tuner.slices.slice import Slice
from tuner.stores import Trial

MOST = 8


class Role(StrEnum):
    """Why a candidate is measured. Values are stored: only add, never remove."""

    INCUMBENT = "incumbent"
    PROMISING = "promising"
    BASELINE = "baseline"
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A candidate in a placement that is to be measured.

    Attributes:
        trial: of the prediction; None for an incumbent that the study has not predicted.
        predicted_s: the step under this very placement.
        name: of the baseline, ``A`` or ``B``.
    """

    role: Role
    candidate: Candidate
    placement: Placement
    trial: Trial | None = None
    predicted_s: float | None = None
    name: str = ""

    @property
    def identity(self) -> tuple[str, tuple[int, ...]]:
        """What is run: the candidate and the order of devices."""
        return self.candidate.digest, self.placement.devices


def promising(
    trials: Sequence[Trial],
    slice_: Slice,
    *,
    error: float,
    baselines: Mapping[str, Trial],
    incumbent: Plan | None = None,
    others: int = 1,
    most: int = MOST,
    seed: int = 0,
    jax: tuple[int, int] = (0, 12),
) -> list[Entry]:
    """Returns what to measure, in that order, each once.

    Those predicted within (1 + `error`) of the best prediction, at most `most` of them, best first. Always the plan in
    service, the baselines in JAX's default order, and `others` further candidates drawn at random, which keep the model
    honest: among those that it holds for slow, it may be wrong.

    Args:
        trials: with predictions; others are passed over.
        slice_: that they are placed on.
        error: relative error of the model.
        baselines: trials of the baselines by name.
        incumbent: the plan in service.
        others: how many to draw at random.
        most: how many promising ones.
        seed: of the draw.
        jax: version whose default order baselines have.
    """
    predicted = sorted(
        (trial for trial in trials if trial.predicted_s is not None and trial.placement is not None),
        key=lambda trial: (trial.predicted_s or 0.0, trial.number),
    )
    entries: list[Entry] = []
    if incumbent is not None:
        placed = incumbent.placement
        same = next((t for t in predicted if t.candidate == incumbent.candidate and t.placement == placed), None)
        entries.append(
            Entry(
                role=Role.INCUMBENT,
                candidate=incumbent.candidate,
                placement=placed,
                trial=same,
                predicted_s=incumbent.predicted_s if same is None else same.predicted_s,
            )
        )
    best_s = predicted[0].predicted_s if predicted else None
    near = [t for t in predicted if best_s is not None and (t.predicted_s or 0.0) <= (1 + error) * best_s][:most]
    entries += [_entry(Role.PROMISING, trial) for trial in near]
    for name, trial in sorted(baselines.items()):
        default = trial.candidate.placement or jax_default(slice_, trial.candidate.layout, jax=jax)
        default_s = trial.numbers.get("default_step_s")
        if default_s is not None:  # it has routes there, and is this program
            entries.append(
                Entry(
                    role=Role.BASELINE,
                    candidate=trial.candidate,
                    placement=default,
                    trial=trial,
                    predicted_s=default_s,
                    name=name,
                )
            )
    chosen = {entry.identity for entry in entries}
    rest = [entry for trial in predicted if (entry := _entry(Role.RANDOM, trial)).identity not in chosen]
    entries += random.Random(seed).sample(rest, min(others, len(rest)))
    return list({entry.identity: entry for entry in reversed(entries)}.values())[::-1]


def _entry(role: Role, trial: Trial) -> Entry:
    assert trial.placement is not None
    return Entry(
        role=role,
        candidate=trial.candidate,
        placement=trial.placement,
        trial=trial,
        predicted_s=trial.predicted_s,
    )
