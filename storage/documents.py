"""Values of the domain as strict JSON and compressed bodies, the same for every store.

Strict JSON has no NaN and no infinities, PostgreSQL has no NUL in a text, and neither takes half a surrogate pair; what
a search found must not be lost over that, so such floats become their names and such characters a replacement mark.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tuner.canonical import canonical_json
from tuner.errors import InvalidValue, StoreError
from tuner.ports import ArgumentSharding, Compiled, Screened
from tuner.program import serial


def clean(text: str) -> str:
    """Returns a text that every database takes."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def strict(value: Any) -> Any:
    """Returns a deep copy in plain JSON types; non-finite floats become ``NaN``, ``Infinity`` or ``-Infinity``.

    Raises InvalidValue if a part is of no JSON type.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str():
            return clean(str(value))
        case Mapping():
            return {clean(str(key)): strict(part) for key, part in value.items()}
        case list() | tuple():
            return [strict(part) for part in value]
        case _:
            raise InvalidValue(f"a {type(value).__name__} is no JSON value: {value!r}")


def floats(document: Mapping[str, Any]) -> dict[str, float]:
    """Reads numbers that `strict` wrote, non-finite ones included."""
    return {name: float(number) if isinstance(number, str) else number for name, number in document.items()}


def utc(time: datetime | None) -> datetime | None:
    """Returns an aware time in UTC. Raises InvalidValue if it is naive."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise InvalidValue(f"time {time.isoformat()} is naive; stores take aware times")
    return time.astimezone(UTC)


def screened_to_json(screened: Screened) -> dict[str, Any]:
    """Returns a strict JSON document."""
    return {
        "program": serial.to_json(screened.program),
        "least_bytes": screened.least_bytes,
        "digest": screened.digest,
    }


def screened_from_json(document: Mapping[str, Any]) -> Screened:
    """Reads what `screened_to_json` wrote."""
    return Screened(
        program=serial.from_json(document["program"]),
        least_bytes=document["least_bytes"],
        digest=document["digest"],
    )


def compiled_to_json(compiled: Compiled) -> dict[str, Any]:
    """Returns a strict JSON document; whether the result came from a cache is not part of it."""
    return {
        "program": serial.to_json(compiled.program),
        "lowered_digest": compiled.lowered_digest,
        "arguments": [
            {"path": a.path, "shape": list(a.shape), "dtype": a.dtype, "spec": [list(axes) for axes in a.spec]}
            for a in compiled.arguments
        ],
        "compile_s": compiled.compile_s,
    }


def compiled_from_json(document: Mapping[str, Any]) -> Compiled:
    """Reads what `compiled_to_json` wrote."""
    return Compiled(
        program=serial.from_json(document["program"]),
        lowered_digest=document["lowered_digest"],
        arguments=tuple(
            ArgumentSharding(
                path=a["path"],
                shape=tuple(a["shape"]),
                dtype=a["dtype"],
                spec=tuple(tuple(axes) for axes in a["spec"]),
            )
            for a in document["arguments"]
        ),
        compile_s=document["compile_s"],
    )


def packed(document: Mapping[str, Any]) -> bytes:
    """Returns a document's canonical JSON, compressed with zlib."""
    return zlib.compress(canonical_json(document).encode(), 6)


def unpacked(body: bytes) -> Any:
    """Reads what `packed` wrote. Raises StoreError if the body is damaged."""
    try:
        return json.loads(zlib.decompress(body))
    except (zlib.error, ValueError) as error:
        raise StoreError(f"a stored program is damaged: {error}") from error
