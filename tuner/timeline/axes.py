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
    rows = collective.pairs or collective.groups
    size = max(map(len, rows))
    members = np.asarray([row + row[-1:] * (size - len(row)) for row in rows])  # groups may be of several sizes
    positions = np.stack(np.unravel_index(members, layout.shape))
    differs = (positions != positions[..., :1]).any(axis=(1, 2))
    return tuple(name for name, moves in zip(layout.axis_names, differs, strict=True) if moves)
