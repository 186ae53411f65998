"""Which mesh axes a collective runs over."""

from __future__ import annotations

import numpy as np

from tuner.layouts.layout import Layout
from tuner.program.program import Collective, CollectiveKind


def spanned_axes(collective: Collective, layout: Layout) -> tuple[str, ...]:
    """Returns the mesh axes along which the members of a group (or the ends of a pair) differ, outermost first.

    A collective between slices spans ``("dcn",)``.
    """
    if collective.kind is CollectiveKind.DCN:
        return ("dcn",)
    members = np.asarray(collective.pairs or collective.groups)
    positions = np.stack(np.unravel_index(members, layout.shape))
    differs = (positions != positions[..., :1]).any(axis=(1, 2))
    return tuple(name for name, moves in zip(layout.axis_names, differs, strict=True) if moves)
