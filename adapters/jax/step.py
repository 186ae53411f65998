"""The JAX half of a workload: its step, built for a mesh and ready to lower."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax

from tuner.canonical import digest
from tuner.layouts.layout import Layout
from tuner.ports import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A jittable function with abstract, sharded arguments.

    Attributes:
        function: takes `arguments` as positional arguments.
        arguments: pytrees whose leaves are ``jax.ShapeDtypeStruct`` with a ``NamedSharding`` on the mesh.
        out_shardings: shardings of the result, as ``jax.jit`` takes them.
        donate: indices of arguments whose buffers the result may reuse.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    out_shardings: Any = None
    donate: tuple[int, ...] = ()

    def jitted(self) -> Any:
        """Returns the function as it is compiled and timed."""
        return jax.jit(self.function, out_shardings=self.out_shardings, donate_argnums=self.donate)

    def lower(self, platform: str = "tpu") -> Any:
        """Lowers for a platform, whatever backend is present, and returns a ``jax.stages.Lowered``."""
        return self.jitted().trace(*self.arguments).lower(lowering_platforms=(platform,))


def source_digest(paths: Iterable[Path]) -> str:
    """Returns the digest of the texts of source files; a file that is not there counts as empty."""
    return digest([path.read_text() if path.is_file() else "" for path in sorted(paths)])


class JaxWorkload(Workload, Protocol):
    """A workload that can build its step."""

    def step(self, layout: Layout, mesh: jax.sharding.Mesh, *, kernels: bool) -> Step:
        """Builds the step of a layout on a mesh whose axes are the layout's, in order.

        With `kernels` False, attention is written with plain matrix products of the same shapes and operations, which
        lower in a tenth of the time and serve the screen; with True, as it runs on a TPU.
        """
