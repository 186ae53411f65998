"""A runner that replays timings as if they came from a device: for tests, and to compare searches without hardware."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import InvalidValue, TunerError
from tuner.layouts.layout import Candidate
from tuner.measurements import Measurement
from tuner.placements.placement import Placement
from tuner.plans.toolchain import Toolchain
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.slices.slice import Slice
from tuner.timings import Measured

SCHEMA_VERSION = 1

Key = tuple[str, tuple[int, ...]]


class WrongRecording(TunerError, ValueError):
    """A recording was made on another slice or by another toolchain; the text names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Samples of several candidates on one slice under one toolchain.

    Attributes:
        slice_name, toolchain: that it was made on and with.
        device_kind: of the devices.
        samples_s: seconds of a step for each candidate's digest and order of devices.
    """

    slice_name: str
    toolchain: Toolchain
    device_kind: str
    samples_s: Mapping[Key, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, measurements: Iterable[Measurement]) -> Recording:
        """Makes a recording of stored measurements; samples of one candidate in one placement are joined, oldest first.

        Raises WrongRecording if they are of several slices or toolchains, and InvalidValue if there are none.
        """
        oldest_first = sorted(measurements, key=lambda each: each.id)
        if not oldest_first:
            raise InvalidValue("a recording of no measurements; one or more are legal")
        first = oldest_first[0]
        samples: dict[Key, tuple[float, ...]] = {}
        for each in oldest_first:
            _same(each.slice.name, first.slice.name, each.toolchain, first.toolchain)
            key = each.candidate.digest, each.placement.devices
            samples[key] = samples.get(key, ()) + each.samples_s
        return cls(
            slice_name=first.slice.name, toolchain=first.toolchain, device_kind=first.device_kind, samples_s=samples
        )

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "slice": self.slice_name,
            "toolchain": self.toolchain.to_json(),
            "device_kind": self.device_kind,
            "samples": [
                {"candidate": digest, "placement": list(devices), "samples_s": list(samples)}
                for (digest, devices), samples in self.samples_s.items()
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Recording:
        """Reads what `to_json` wrote. Raises InvalidValue on a newer schema or with parts missing."""
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InvalidValue(
                f"recording has schema_version {document.get('schema_version')!r}; this version reads {SCHEMA_VERSION}"
            )
        try:
            return cls(
                slice_name=str(document["slice"]),
                toolchain=Toolchain.from_json(document["toolchain"]),
                device_kind=str(document["device_kind"]),
                samples_s={
                    (str(row["candidate"]), tuple(row["placement"])): tuple(map(float, row["samples_s"]))
                    for row in document["samples"]
                },
            )
        except (KeyError, TypeError) as error:
            raise InvalidValue(f"recording is incomplete or malformed: {error!r}") from error

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Reads a file. Raises InvalidValue if it is no recording."""
        try:
            return cls.from_json(json.loads(path.read_text()))
        except json.JSONDecodeError as error:
            raise InvalidValue(f"{path} is no recording: {error}") from error


class RecordedRunner:
    """A `tuner.ports.Runner` that gives out the samples of a recording, in their order and from the start again.

    Args:
        recording: what to replay.
        toolchain: that the search runs under, which must be the recording's.
    """

    def __init__(self, recording: Recording, toolchain: Toolchain) -> None:
        _same(recording.slice_name, recording.slice_name, recording.toolchain, toolchain)
        self._recording = recording
        self._next: dict[Key, int] = {}
        self.runs = 0

    def measure(
        self,
        workload: WorkloadSpec,
        slice_: Slice,
        candidate: Candidate,
        placement: Placement,
        *,
        enough: Callable[[Sequence[float]], bool],
    ) -> Measured | Rejection:
        """Replays samples until it is enough; what was not recorded does not run.

        Raises WrongRecording for another slice.
        """
        recorded = self._recording
        _same(recorded.slice_name, slice_.name, recorded.toolchain, recorded.toolchain)
        key = candidate.digest, placement.devices
        known = recorded.samples_s.get(key)
        if not known:
            return Rejection(
                stage=Stage.MEASURE,
                reason=RejectReason.RUN_ERROR,
                detail=f"the recording has no samples of {candidate.layout} in this placement",
            )
        samples: list[float] = []
        while True:
            at = self._next.get(key, 0)
            self._next[key] = at + 1
            self.runs += 1
            samples.append(known[at % len(known)])
            if enough(tuple(samples)):
                break
        return Measured(
            samples_s=tuple(samples),
            steps=1,
            warmup=0,
            device_kind=recorded.device_kind,
            devices=slice_.num_devices,
            host="recording",
            toolchain=recorded.toolchain,
            warm=True,
            unchecked="a recording computes nothing",
        )


def _same(slice_name: str, wanted_slice: str, toolchain: Toolchain, wanted: Toolchain) -> None:
    if slice_name != wanted_slice:
        raise WrongRecording(f"a recording of {slice_name} does not serve {wanted_slice}")
    if toolchain.digest != wanted.digest:
        changes = "; ".join(toolchain.fingerprint.differences(wanted.fingerprint))
        raise WrongRecording(f"the recording was made with {toolchain}: {changes}")
