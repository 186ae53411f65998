"""An observation beside what the model says of it, under any constants."""

from __future__ import annotations

import math

import numpy as np

from tuner.calibration.calibration import Calibration
from tuner.calibration.calibration import calibration as shipped
from tuner.calibration.dials import Dial
from tuner.calibration.observation import Observation
from tuner.canonical import digest
from tuner.layouts.layout import Layout
from tuner.network.cost import Degraded
from tuner.program import serial
from tuner.program.program import Program
from tuner.timeline.ranker import Ranker


class Outlook:
    """Predicts one observation; what does not depend on the constants is found out once."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._ranker = Ranker(
            observation.program,
            observation.slice,
            Layout.of({"devices": observation.slice.num_devices}, {}),
            shipped(observation.slice.generation_name),
            tuple(map(Degraded.parse, observation.links)),
        )
        self._devices = np.asarray([observation.placement.devices])
        self._operations = [node for node, _ in observation.program.walk()]
        self._observed = math.log(observation.seconds)

    @property
    def program(self) -> Program:
        """What ran."""
        return self.observation.program

    @property
    def key(self) -> str:
        """Equal for repeats of one program on one placement."""
        program = serial.to_json(self.program)
        return digest([self.observation.name, program, list(self.observation.placement.devices)])

    def turned_by(self, dial: Dial) -> bool:
        """Returns whether the prediction depends on a constant."""
        return any(map(dial.turns, self._operations))

    def seconds(self, constants: Calibration) -> float:
        """Returns the predicted time; infinite where the program cannot run."""
        return float(self._ranker.recalibrated(constants).step_s(self._devices)[0])

    def possible(self, constants: Calibration) -> bool:
        """Returns whether the model has a time for it at all."""
        return 0 < self.seconds(constants) < math.inf

    def log_ratio(self, constants: Calibration) -> float:
        """Returns the natural logarithm of predicted over observed."""
        return math.log(self.seconds(constants)) - self._observed

    def error(self, constants: Calibration) -> float:
        """Returns predicted over observed, less 1."""
        return self.seconds(constants) / self.observation.seconds - 1
