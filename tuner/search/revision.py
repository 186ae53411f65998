"""Which space and which model a study's numbers come from. A study never mixes two."""

from __future__ import annotations

import dataclasses

from tuner.calibration.calibration import Calibration
from tuner.canonical import digest
from tuner.layouts.space import Space

MODEL = "1"
"""Revision of the code that turns a program into seconds. Raise it with any change that moves a prediction."""


def model_revision(space: Space, calibration: Calibration) -> str:
    """Returns a short digest over the space, the calibration and the model's revision."""
    return digest([dataclasses.asdict(space), dataclasses.asdict(calibration), MODEL])[:12]
