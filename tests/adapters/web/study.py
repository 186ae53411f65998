"""A real study: 21 trials, 6 of them compiled by libtpu 0.0.42.1, and one plan.

The database that `meshwright tune wan2.1-t2v-14b --shape 832x480x81 --slice v5e-4x4` left at schema revision 0001,
without what screens found out and with another name for the host.
"""

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
