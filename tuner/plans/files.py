"""A plan as a file that needs no package to be read: its document, and a digest over it.

A file that was changed, cut short or written by a newer version is refused with the reason: a deploy must not run what
nobody searched for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.canonical import digest
from tuner.errors import InvalidValue
from tuner.plans.plan import SCHEMA_VERSION, Plan

DIGEST = "sha256"
"""Name of the digest in a file: SHA-256 of the canonical JSON (sorted keys, no spaces) of everything else."""

LARGEST_BYTES = 64 << 20


def dump(plan: Plan) -> str:
    """Returns the text of a file."""
    document = plan.to_json()
    return json.dumps(document | {DIGEST: digest(document)}, indent=2, allow_nan=False) + "\n"


def load(text: str) -> Plan:
    """Reads what `dump` wrote. Raises InvalidValue with the reason for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not JSON, so cut short or no plan at all: {error}") from None
    if not isinstance(document, dict):
        raise InvalidValue(f"a plan is a JSON object, this is a {type(document).__name__}")
    return checked(document)


def checked(document: Mapping[str, Any]) -> Plan:
    """Returns the plan of a file's document. Raises InvalidValue with the reason if it is not as it was written."""
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        # Before the digest: what a newer version digests is its own affair.
        raise InvalidValue(
            f"a newer meshwright wrote this plan (schema {version}); this version reads up to {SCHEMA_VERSION}: "
            "upgrade the package"
        )
    written = document.get(DIGEST)
    if not isinstance(written, str):
        raise InvalidValue(f"no {DIGEST} in it, so this is not what `meshwright plans export` writes")
    found = digest({name: part for name, part in document.items() if name != DIGEST})
    if found != written:
        raise InvalidValue(
            f"changed since it was written: its digest is {found[:12]}..., {written[:12]}... was written"
        )
    return Plan.from_json(document)


def read(path: Path) -> Plan:
    """Reads a plan file. Raises InvalidValue, naming the file, with the reason if there is no such plan in it."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InvalidValue(f"larger than {LARGEST_BYTES >> 20} MiB, so no plan")
        return load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, InvalidValue) as error:
        raise InvalidValue(f"plan file {path}: {error}") from None
