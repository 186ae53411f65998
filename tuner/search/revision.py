"""Which space and which model a study's numbers come from. A study never mixes two."""

from __future__ import annotations

import dataclasses

from tuner.calibration.calibration import Calibration
from tuner.canonical import digest
from tuner.ports import Workload

MODEL = "1"
"""Revision of the code that turns a program into seconds. Raise it with any change that moves a prediction."""


def model_revision(workload: Workload, calibration: Calibration) -> str:
    """Returns a short digest over the space, the code of the step, the calibration and the model's revision."""
    return digest([dataclasses.asdict(workload.space), workload.source, dataclasses.asdict(calibration), MODEL])[:12]
