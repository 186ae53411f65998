"""Case 44: where JAX's compilation cache would crash, it is not used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from adapters.jax.cache import cache_environment, is_safe, unless_unsafe
from tests.adapters.jax.fakes import fake_devices
from tuner.slices.names import parse_slice


def test_only_what_has_the_first_chip_is_safe() -> None:
    devices = fake_devices(parse_slice("v6e-2x4"))
    assert is_safe(devices, devices)
    assert is_safe(list(reversed(devices)), list(reversed(devices)))
    first = min(devices, key=lambda device: tuple(reversed(device.coords)))
    rest = [device for device in devices if device is not first]
    assert not is_safe(rest[3:], devices)
    assert is_safe([first], devices)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    compilation_cache.reset_cache()


def compiled(devices: list[jax.Device], factor: float) -> None:
    x = jax.device_put(jax.numpy.ones(8), devices[0])

    def sines(x: jax.Array) -> jax.Array:
        return jax.numpy.sin(x) * factor

    with unless_unsafe(devices, jax.devices()):
        jax.jit(sines).lower(x).compile()


def kept(directory: Path) -> int:
    return sum(path.name.startswith("jit_sines") and path.name.endswith("-cache") for path in directory.iterdir())


def test_a_part_without_the_first_device_leaves_nothing_in_the_cache(directory: Path) -> None:
    devices = jax.devices()
    compiled(devices[2:4], 3.0)
    assert kept(directory) == 0
    compiled(devices[:2], 5.0)
    assert kept(directory) >= 1


def test_a_users_own_directory_stays() -> None:
    assert cache_environment(environ={"JAX_COMPILATION_CACHE_DIR": "/mine"})["JAX_COMPILATION_CACHE_DIR"] == "/mine"
    assert cache_environment(Path("/ours"), environ={})["JAX_COMPILATION_CACHE_DIR"] == "/ours"
