"""A real study: Wan 2.1 14B on v5e-4x4, as `meshwright tune` left it (21 trials, 6 of them compiled, one plan)."""

from __future__ import annotations

import lzma
from pathlib import Path

from storage.migrations import upgrade

ASSET = Path(__file__).parents[2] / "assets" / "wan_study.db.xz"


def wan_study(path: Path) -> str:
    """Writes the study's database, brought to this version's schema, and returns its URL."""
    path.write_bytes(lzma.decompress(ASSET.read_bytes()))
    url = f"sqlite:///{path}"
    upgrade(url)
    return url
