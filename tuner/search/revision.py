"""Which space and which model a study's numbers come from. A study never mixes two."""

from __future__ import annotations

import dataclasses

from tuner.calibration.calibration import Calibration
from tuner.canonical import digest
from tuner.plans.plan import Constraints
from tuner.plans.toolchain import Toolchain
from tuner.plans.workload import WorkloadKey
from tuner.ports import Workload
from tuner.search import physical
from tuner.slices.slice import Slice
from tuner.stores import StudyKey


def model_revision(workload: Workload, calibration: Calibration) -> str:
    """Returns a short digest over the space, the code of the step, and the calibration with its formulas' revision."""
    return digest([dataclasses.asdict(workload.space), physical.REVISION, workload.source, calibration.digest])[:12]


def study_key(
    workload: Workload, slice_: Slice, toolchain: Toolchain, constraints: Constraints, calibration: Calibration
) -> StudyKey:
    """Returns the key of the study that a search of a workload on a slice is."""
    return StudyKey(
        workload=WorkloadKey.of(workload.name, workload.identity),
        slice=slice_,
        toolchain=toolchain,
        constraints=constraints,
        space_revision=model_revision(workload, calibration),
    )
