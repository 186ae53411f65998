"""Inputs that nobody means well, and what must hold for each: a plain refusal, no traceback, nothing written.

`tests/test_fuzz.py` tries a few hundred of each kind, `benchmarks/fuzz.py` a hundred thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route

import storage
from adapters.cli.main import cli, read_settings
from adapters.client import _read
from adapters.web.app import create_app
from tests.storage.samples import plan, study_key, trial
from tuner.canonical import digest
from tuner.errors import InvalidValue, TunerError
from tuner.plans import answers, files
from tuner.plans.lookup import Answer, Rung
from tuner.plans.plan import PlanState, StoredPlan

Run = Callable[[int], None]

PLAN = plan()
FILE = files.dump(PLAN)
DOCUMENT = {name: part for name, part in json.loads(FILE).items() if name != files.DIGEST}

ODD = st.sampled_from(
    ["", "\0", "\ud800", "'; DROP TABLE mw_plans; --", "../../etc/passwd", "{{7*7}}", "<script>", "%00", "1e999", "nan"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | ODD
    | st.sampled_from([-1, 0, 2**31, 2**63, 10**30])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A JSON document with some of its parts replaced, dropped or added, at any depth."""
    for _ in range(draw(st.integers(1, 3))):
        document = _changed(draw, document)
    return document


def _changed(draw: st.DrawFn, part: Any) -> Any:
    if isinstance(part, dict) and part and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(part)))
        match draw(st.integers(0, 5)):
            case 0:
                return {key: value for key, value in part.items() if key != name}
            case 1:
                return part | {draw(st.text(max_size=8)): draw(JSON)}
            case _:
                return part | {name: _changed(draw, part[name])}
    if isinstance(part, list) and part and draw(st.booleans()):
        at = draw(st.integers(0, len(part) - 1))
        return [*part[:at], *([_changed(draw, part[at])] if draw(st.booleans()) else []), *part[at + 1 :]]
    return draw(JSON)


@st.composite
def spliced(draw: st.DrawFn, text: str) -> str:
    """A text with a piece of it cut out and something else in its place."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 40)))
    return text[:start] + draw(st.text(max_size=10) | ODD) + text[end:]


def repeated(check: Callable[..., None], examples: int, **strategies: st.SearchStrategy[Any]) -> None:
    """Runs a check on so many inputs."""
    configured = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    configured(given(**strategies)(check))()


def plan_files(examples: int) -> None:
    """A plan file is a plan or refused, whether its digest is right or not."""

    def check(text: str, document: Any) -> None:
        _loads(text)
        try:
            _loads(json.dumps(document | {files.DIGEST: digest(document)}) if isinstance(document, dict) else "null")
        except InvalidValue:
            _loads(json.dumps(document | {files.DIGEST: "0"}))

    repeated(check, examples, text=spliced(FILE), document=changed(DOCUMENT))


def _loads(text: str) -> None:
    try:
        found = files.load(text)
    except InvalidValue:
        return
    assert files.load(files.dump(found)) == found


def kept_answers(examples: int, directory: Path) -> None:
    """A kept answer is read, or counts as absent."""
    stored = StoredPlan(plan=PLAN, id=1, version=1, state=PlanState.ACTIVE, stored_at=PLAN.created_at)
    body = {"at": PLAN.created_at.isoformat(), "answer": answers.to_json(Answer(rung=Rung.EXACT, plan=stored))}
    path = directory / "kept.json"
    logging.getLogger("adapters.client").setLevel(logging.CRITICAL)

    def check(document: Any) -> None:
        try:
            sealed = {"sha256": digest(document), **document} if isinstance(document, dict) else document
            path.write_text(json.dumps(sealed), encoding="utf-8")
        except InvalidValue:
            return
        _read(path)

    try:
        repeated(check, examples, document=changed(body))
    finally:
        logging.getLogger("adapters.client").setLevel(logging.NOTSET)


SETTINGS = """
db = "sqlite:///{database}"
[lookup]
slice_name = "v5e-2x4"
shape = "832x480x81"
reserve_hbm = "2GiB"
links = ["0,0:1,0=0.5"]
videos = 1
[trials]
limit = 5
state = "complete"
[plans.list]
output = "json"
"""

COMMANDS = st.sampled_from(
    [("lookup", "wan2.1-t2v-1.3b"), ("trials", "wan2.1-t2v-1.3b"), ("plans", "list"), ("slices",)]
)


def settings_files(examples: int, directory: Path) -> None:
    """A settings file is obeyed or refused by name, and no command that reads makes a file."""
    url = filled(directory)
    path = directory / "settings.toml"
    text = SETTINGS.format(database=url.removeprefix("sqlite:///"))
    before = sorted(directory.iterdir())

    def check(text: str, command: tuple[str, ...]) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(TunerError, click.ClickException, SystemExit):
            cli.main(list(command), default_map=read_settings(path), standalone_mode=False)

    path.write_text("")
    before = sorted(directory.iterdir())
    repeated(check, examples, text=spliced(text), command=COMMANDS)
    after = [found for found in sorted(directory.iterdir()) if not found.name.endswith(("-wal", "-shm"))]
    assert after == [found for found in before if not found.name.endswith(("-wal", "-shm"))]


def filled(directory: Path) -> str:
    """URL of a database with a plan and a study."""
    url = f"sqlite:///{directory / 'fuzzed.db'}"
    with storage.open_store(url, create=True) as store:
        study = store.open_study(study_key())
        store.save_trials(study.id, [trial(number) for number in range(3)])
        store.promote(PLAN)
    return url


WORDS = (
    st.text(max_size=12)
    | ODD
    | st.sampled_from(
        ["1", "2", "-1", "wan2.1-t2v-1.3b", "832x480x81", "v5e-2x4", "9" * 30, "true", "complete", "model"]
    )
)
_LOOKED_UP = ["toolchain", "revision", "variant", "reserve_hbm_bytes", "link"]
_LISTED = ["study", "after", "before", "limit", "state", "sort", "page", "q", "model", "slice", "evidence", "a", "b"]
NAMES = st.sampled_from([*_LOOKED_UP, *_LISTED])
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"if-none-match", b"accept", b"authorization", b"host", b"content-type", b"cookie", b"hx-request"]
        ),
        st.binary(max_size=20) | st.sampled_from([b"text/html", b"Bearer x", b'"x"', b"application/json"]),
    ),
    max_size=3,
)


@st.composite
def requests(draw: st.DrawFn, templates: list[str]) -> tuple[str, str, str, list[tuple[bytes, bytes]], bytes]:
    """Method, path, query, headers and body, most of them for a path that there is."""
    template = draw(st.sampled_from([*templates, "/{anything}"]))
    parts = [
        quote(draw(WORDS).encode("utf-8", "replace")) if part.startswith("{") else part for part in template.split("/")
    ]
    query = "&".join(
        f"{draw(NAMES)}={quote(draw(WORDS).encode('utf-8', 'replace'))}" for _ in range(draw(st.integers(0, 3)))
    )
    method = draw(st.sampled_from(["GET"] * 8 + ["POST", "HEAD", "DELETE", "PUT"]))
    return method, "/".join(parts), query, draw(HEADERS), draw(st.binary(max_size=30)) if method == "POST" else b""


def http_requests(examples: int, directory: Path) -> None:
    """Every request is answered without an error of ours, and a service without a token changes nothing."""
    url = filled(directory)
    path = Path(url.removeprefix("sqlite:///"))
    app = create_app(url)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    templates = [_plain(route.path) for route in app.routes if isinstance(route, Route)]

    def check(request: tuple[str, str, str, list[tuple[bytes, bytes]], bytes]) -> None:
        status = loop.run_until_complete(answered(app, *request))
        assert 200 <= status < 500, (status, request)

    loop = asyncio.new_event_loop()
    try:
        repeated(check, examples, request=requests(templates))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        app.state.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def _plain(template: str) -> str:
    return template.replace(":int}", "}").replace(":path}", "}")


async def answered(
    app: Starlette, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> int:
    """Returns the status of a request, made as a server makes it."""
    from urllib.parse import unquote

    sent: list[Any] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "app": app,
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await asyncio.wait_for(app(scope, receive, send), timeout=20)
    except TimeoutError:
        return 599
    return int(sent[0]["status"])
