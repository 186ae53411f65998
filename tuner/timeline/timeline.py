"""One program, one placement: the predicted step."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.calibration.calibration import Calibration
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.placements.placement import Placement
from tuner.program.program import Program
from tuner.slices.slice import Slice
from tuner.timeline.prediction import Prediction
from tuner.timeline.ranker import Ranker


def predict(
    program: Program,
    placement: Placement,
    slice_: Slice,
    layout: Layout,
    calibration: Calibration,
    degraded: Sequence[Degraded] = (),
) -> Prediction:
    """Returns the step of a program under a placement. To score many placements, keep one `Ranker`.

    Raises InvalidValue if the numbers of devices differ.
    """
    return Ranker(program, slice_, layout, calibration, degraded).predict(placement)
