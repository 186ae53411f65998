"""JAX's persistent compilation cache for processes that run steps.

It is set through the environment of such a process, before any of its code runs: JAX decides at the first compile
whether there is a cache, and a model that makes an array when it is imported would decide it before us
(jax-ml/jax#25768).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs


def cache_environment(directory: Path | None = None, *, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a process whose compiles are kept; a directory that `environ` names already stays."""
    default = directory or Path(platformdirs.user_cache_dir("meshwright")) / "xla"
    return {
        "JAX_COMPILATION_CACHE_DIR": environ.get("JAX_COMPILATION_CACHE_DIR") or str(default),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def is_safe(used: Sequence[Any], attached: Sequence[Any]) -> bool:
    """Returns whether executables for these devices can be read back from the cache.

    On v6e, reading one for a part of the attached chips without the first of them crashes (jax-ml/jax#38004).
    """
    first = min(attached, key=_position)
    return any(device == first for device in used)


@contextlib.contextmanager
def unless_unsafe(used: Sequence[Any], attached: Sequence[Any]) -> Iterator[None]:
    """Turns the cache off for what is compiled inside, where it is not safe for these devices."""
    if is_safe(used, attached):
        yield
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX asks the setting once
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def _position(device: Any) -> tuple[Any, ...]:
    coords = getattr(device, "coords", None)
    return (*(reversed(coords) if coords is not None else ()), getattr(device, "core_on_chip", 0), device.id)
