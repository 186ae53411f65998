"""A deploy's way to a plan: asks the service or the database, and keeps the last good answer for when they are away.

Needs neither JAX nor Optuna, and of the service nothing but HTTP.
"""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import storage
from adapters.files import write_whole
from adapters.models.known import informed
from tuner.canonical import digest
from tuner.errors import InvalidValue, StoreError
from tuner.plans import answers
from tuner.plans.lookup import Answer, Query, Rung, find
from tuner.stores import Store
from tuner.units import spell_seconds

_LOG = logging.getLogger(__name__)
_LARGEST_BYTES = 64 << 20
_NO_SHAPE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An answer, and how old it is.

    Attributes:
        answer: its reasons say if it was kept.
        kept_at: when the source last gave this plan; None if it did so now.
    """

    answer: Answer
    kept_at: datetime | None = None

    @property
    def age_s(self) -> float:
        """Seconds since the source gave the plan; 0 if it did so now."""
        return 0.0 if self.kept_at is None else max(0.0, (datetime.now(UTC) - self.kept_at).total_seconds())


class Client:
    """Looks plans up in a service or a database. Not for several threads at once."""

    def __init__(self, source: str | None = None, *, directory: Path | None = None, timeout_s: float = 5.0) -> None:
        """Asks nothing yet.

        Args:
            source: ``http://...`` or ``https://...`` of a service, or a database as `storage.open_store` takes it.
            directory: where good answers are kept; None for the user's cache directory.
            timeout_s: for the service to answer, at each step.
        """
        self._source = source or storage.default_url()
        self._directory = directory
        self._timeout_s = timeout_s
        self._store: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases connections."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def lookup(self, query: Query) -> Served:
        """Returns the source's answer, or the last good one if the source is away.

        Raises StoreError if it is away and there is no answer to this question that was kept, InvalidValue if the
        service does not take the question.
        """
        path = self._path(query)
        try:
            answer = self._asked(query)
        except StoreError as away:
            kept = self._kept(path, query, away)
            if kept is None:
                raise
            return kept
        self._keep(path, answer)
        return Served(answer=answer)

    def _asked(self, query: Query) -> Answer:
        if self._source.startswith(("http://", "https://")):
            return _ask_service(self._source, query, self._timeout_s)
        if self._store is None:
            self._store = storage.open_store(self._source, read_only=True)
        return informed(query, self._store.lookup(query))

    def _path(self, query: Query) -> Path:
        # The toolchain is no part of the name: what was kept under another is better than nothing, and says so.
        asked = [
            self._source,
            query.model,
            query.shape,
            query.slice_name,
            query.variant,
            query.revision,
            query.constraints.to_json(),
        ]
        directory = self._directory
        if directory is None:
            from platformdirs import user_cache_path

            directory = user_cache_path("meshwright", appauthor=False) / "answers"
        return directory / f"{digest(asked)}.json"

    def _keep(self, path: Path, answer: Answer) -> None:
        """Keeps a plan; forgets what was kept if there is none any more, for it may have been retired as wrong."""
        try:
            if answer.plan is None:
                path.unlink(missing_ok=True)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            body = {"at": datetime.now(UTC).isoformat(), "answer": answers.to_json(answer)}
            write_whole(path, json.dumps({"sha256": digest(body), **body}, allow_nan=False))
        except OSError as error:
            _LOG.warning("an answer could not be kept in %s: %s", path, error)

    def _kept(self, path: Path, query: Query, away: StoreError) -> Served | None:
        kept = _read(path)
        if kept is None:
            return None
        at, answer = kept
        found = informed(query, find(query, lambda model, slice_name: [answer.plan] if answer.plan else []))
        age = spell_seconds(max(0.0, (datetime.now(UTC) - at).total_seconds()))
        said = f"this answer was kept {age} ago, because its source is away: {away}"
        return Served(answer=replace(found, reasons=(said, *found.reasons)), kept_at=at)


def _read(path: Path) -> tuple[datetime, Answer] | None:
    """Returns what was kept and when; None, with a warning, if the file is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        _LOG.warning("the kept answer %s cannot be read: %s", path, error)
        return None
    try:
        document = json.loads(text)
        written = document.pop("sha256")
        if digest(document) != written:
            raise InvalidValue("its checksum does not match")
        return datetime.fromisoformat(document["at"]), answers.from_json(document["answer"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        _LOG.warning("the kept answer %s is damaged and counts as absent: %s", path, error)
        return None


def service_url(source: str, query: Query) -> str:
    """Returns the address that a query is asked at."""
    path = "/".join(
        urllib.parse.quote(part, safe="") for part in (query.model, query.shape or _NO_SHAPE, query.slice_name)
    )
    constraints = query.constraints
    asked: list[tuple[str, str]] = []
    if query.toolchain is not None:
        asked.append(("toolchain", query.toolchain.spelled))
    if query.revision is not None:
        asked.append(("revision", query.revision))
    if query.variant:
        asked.append(("variant", query.variant))
    if constraints.reserve_hbm_bytes:
        asked.append(("reserve_hbm_bytes", str(constraints.reserve_hbm_bytes)))
    asked += [("link", link) for link in constraints.links]
    return f"{source.rstrip('/')}/v1/plans/{path}" + (f"?{urllib.parse.urlencode(asked)}" if asked else "")


def _ask_service(source: str, query: Query, timeout_s: float) -> Answer:
    request = urllib.request.Request(service_url(source, query), headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return answers.from_json(_document(response.read(_LARGEST_BYTES)))
    except urllib.error.HTTPError as error:
        with error:
            return _refused(source, error)
    except (OSError, HTTPException) as error:
        raise StoreError(f"cannot reach {source}: {getattr(error, 'reason', None) or error}") from error
    except InvalidValue as error:
        raise StoreError(f"{source} answered something else than a plan: {error}") from error


def _refused(source: str, error: urllib.error.HTTPError) -> Answer:
    """Returns the answer that there is none. Raises InvalidValue for what the service did not take, else StoreError."""
    try:
        problem = _document(error.read(_LARGEST_BYTES))
    except (OSError, HTTPException, InvalidValue):
        problem = {}
    detail = str(problem.get("detail", error.reason))
    if error.code == 404 and problem.get("rung") == Rung.NONE.value:
        reasons = problem.get("reasons", [detail])
        return Answer(rung=Rung.NONE, plan=None, reasons=tuple(map(str, reasons)))
    if 400 <= error.code < 500 and "detail" in problem:
        raise InvalidValue(f"{source}: {detail}")
    raise StoreError(f"{source} answered {error.code}: {detail}")


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidValue(f"a JSON {type(document).__name__}")
    return document
