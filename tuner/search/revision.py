"""Which space and which model a study's numbers come from. A study never mixes two."""

from __future__ import annotations

import dataclasses

from tuner.calibration.calibration import Calibration
from tuner.canonical import digest
from tuner.ports import Workload


def model_revision(workload: Workload, calibration: Calibration) -> str:
    """Returns a short digest over the space, the code of the step, and the calibration with its formulas' revision."""
    return digest([dataclasses.asdict(workload.space), workload.source, calibration.digest])[:12]
