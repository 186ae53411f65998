"""What a request says, as values. Whatever is not legal is InvalidValue, which becomes 400 with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.plans.lookup import Query
from tuner.plans.plan import Constraints
from tuner.plans.toolchain import Toolchain
from tuner.slices.names import parse_slice

LONGEST = 256
NO_SHAPE = "-"
"""Stands in a path for the shape of a workload without shapes."""

LARGEST_ID = 2**31 - 1
LARGEST_BYTES = 2**53
_NAME = re.compile(r"[^\x00-\x20\x7f-\xa0\ud800-\udfff/@+]+")
LONGEST_TOOLCHAIN = 4096
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
LOOKUP_PARAMETERS = ("toolchain", "revision", "variant", "reserve_hbm_bytes", "link")


def only(query: QueryParams, legal: tuple[str, ...]) -> None:
    """Refuses parameters that do nothing: a misspelt one would change what is asked."""
    unknown = sorted(set(query) - set(legal))
    if unknown:
        raise InvalidValue(f"no query parameter {unknown[0]!r}; legal: {', '.join(legal)}")
    repeated = [name for name in set(query) - {"link"} if len(query.getlist(name)) > 1]
    if repeated:
        raise InvalidValue(f"query parameter {repeated[0]!r} is given more than once")


def lookup(path: Mapping[str, str], query: QueryParams) -> Query:
    """Returns what a lookup asks for."""
    only(query, LOOKUP_PARAMETERS)
    shape = _name("shape", path["shape"])
    return Query(
        model=_name("model", path["model"]),
        shape="" if shape == NO_SHAPE else shape,
        slice_name=parse_slice(_name("slice", path["slice"])).name,
        variant=_name("variant", query["variant"]) if "variant" in query else "",
        toolchain=toolchain(query["toolchain"]) if "toolchain" in query else None,
        revision=_name("revision", query["revision"]) if "revision" in query else None,
        constraints=Constraints(
            reserve_hbm_bytes=integer(query, "reserve_hbm_bytes", 0, most=LARGEST_BYTES),
            links=tuple(str(Degraded.parse(text[:LONGEST])) for text in query.getlist("link")),
        ),
    )


def toolchain(text: str) -> Toolchain:
    """Returns a toolchain from `Toolchain.spelled`."""
    if len(text) > LONGEST_TOOLCHAIN or _PRINTABLE.fullmatch(text) is None:
        raise InvalidValue(f"toolchain is longer than {LONGEST_TOOLCHAIN} characters or holds some that no flag has")
    return Toolchain.parse(text)


def integer(query: QueryParams, name: str, default: int, *, least: int = 0, most: int) -> int:
    """Returns a number from the query."""
    return number(query[name], name, least=least, most=most) if name in query else default


def number(text: str, name: str, *, least: int = 0, most: int) -> int:
    """Returns a number from a text."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most:
        return int(text)
    raise InvalidValue(f"{name} is {text[:LONGEST]!r}; legal: whole numbers from {least} to {most}")


def note(body: bytes, default: str) -> str:
    """Returns the note in the body of a write, a JSON object with at most that; an empty body has none."""
    if not body:
        return default
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidValue("the body is no JSON") from None
    if not isinstance(document, dict) or set(document) - {"note"}:
        raise InvalidValue('the body is not like {"note": "why"}')
    text = document.get("note", default)
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise InvalidValue(f"note must be a text of 1 to {LONGEST} characters")
    return text


def _name(what: str, text: str) -> str:
    if len(text) > LONGEST or _NAME.fullmatch(text) is None:
        raise InvalidValue(
            f"{what} {text[:40]!r} is not legal: 1 to {LONGEST} characters without spaces, '/', '@' and '+'"
        )
    return text
