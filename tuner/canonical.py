"""Canonical JSON and fingerprints that can explain a miss.

A fingerprint is a list of named steps, each hashed on its own, so that two fingerprints that differ can say which step
differs and how ("libtpu 0.0.50.1 is now 0.0.51").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import InvalidValue


def canonical_json(value: Any) -> str:
    """Returns the one JSON text of a value: sorted keys, no spaces, no NaN. Raises InvalidValue on NaN or infinity."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not expressible as strict JSON: {error}") from error


def digest(value: Any) -> str:
    """Returns the SHA-256 of a value's canonical JSON, in hex. Raises InvalidValue as `canonical_json` does."""
    try:
        return hashlib.sha256(canonical_json(value).encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"not expressible as strict JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Named steps and the digest over all of them."""

    steps: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, steps: Mapping[str, str]) -> Fingerprint:
        """Builds a fingerprint from named texts; the order of the names does not matter."""
        return cls(steps=tuple(sorted(steps.items())))

    @property
    def hex(self) -> str:
        """SHA-256 over the named steps, in hex."""
        return digest(list(self.steps))

    def differences(self, newer: Fingerprint) -> tuple[str, ...]:
        """Returns one sentence for each step in which `newer` differs from this one."""
        old, new = dict(self.steps), dict(newer.steps)
        return tuple(
            f"{name} {old.get(name, 'absent') or 'empty'} is now {new.get(name, 'absent') or 'empty'}"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
        )
