"""What people deploy a Wan step as today, without JAX: a lookup that finds no plan answers with it."""

from __future__ import annotations

AXES = ("data", "cfg", "ring", "context", "ulysses", "tensor")
"""Mesh axes of every Wan layout, outermost first."""


def deployed(devices: int, *, guidance: bool) -> tuple[dict[str, int], dict[str, str]]:
    """Returns sizes of the mesh axes, and options.

    Guidance over 2, context parallelism over the rest with gathered keys and values, weights sharded over the context
    axis: MaxDiffusion's default rules with its recommended mesh.
    """
    cfg = 2 if guidance and devices % 2 == 0 else 1
    context = devices // cfg
    axes = dict.fromkeys(AXES, 1) | {"cfg": cfg, "context": context}
    return axes, {"weights": "context" if context > 1 else "replicated", "blocks": "512,512,512"}
