"""Stand-ins for live TPU devices: what `jax.Device` shows of itself, without a TPU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.slices.hosts import host_of
from tuner.slices.slice import Slice


@dataclass(frozen=True)
class FakeDevice:
    id: int
    coords: tuple[int, int, int]
    core_on_chip: int = 0
    device_kind: str = "TPU v5 lite"
    process_index: int = 0
    platform: str = "tpu"
    slice_index: int = 0


def fake_devices(
    slice_: Slice,
    *,
    corner: Sequence[int] = (0, 0, 0),
    kind: str | None = None,
    seed: int = 0,
    one_host: bool = False,
) -> list[FakeDevice]:
    """Returns the devices of a live slice in an order and with ids that say nothing."""
    rng = random.Random(seed)
    ids = rng.sample(range(1000), slice_.num_devices)
    devices = []
    for index, id_ in enumerate(ids):
        x, y, z = (a + b for a, b in zip((*slice_.coords(index), 0)[:3], corner, strict=True))
        devices.append(
            FakeDevice(
                id=id_,
                coords=(x, y, z),
                core_on_chip=slice_.core(index),
                device_kind=kind or slice_.generation.device_kinds[0],
                process_index=0 if one_host else host_of(slice_, index),
            )
        )
    rng.shuffle(devices)
    return devices
