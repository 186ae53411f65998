"""The overview: every plan in service, what runs now, what the last night did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import site, state
from adapters.web.pages.download import csv_answer
from storage.views import plans, studies
from storage.views.paging import Cursor, Page, Side, Sort
from storage.views.plans import PlanFilter, PlanLine
from storage.views.studies import StudyLine
from storage.views.view import database_of
from tuner.errors import InvalidValue
from tuner.leases import Lease
from tuner.nightly.nights import NightState
from tuner.nightly.report import Ending, EntryReport, NightReport
from tuner.plans.plan import Evidence, PlanState
from tuner.plans.toolchain import Toolchain
from tuner.stores import Store

NEWEST_STUDIES = 8
NIGHT_ENTRIES = 30
LEASES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What the last night did, cut short where it did much.

    Attributes:
        report: as stored; None if a newer version wrote it.
        must_look: whether a person must look at it.
        improved, regressed, failed: entries, the largest change first.
        counts: of entries by how they ended.
    """

    id: int
    state: NightState
    must_look: bool
    report: NightReport | None
    improved: tuple[EntryReport, ...] = ()
    regressed: tuple[EntryReport, ...] = ()
    failed: tuple[EntryReport, ...] = ()
    alarms: tuple[str, ...] = ()
    counts: tuple[tuple[Ending, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewPage:
    """All that the overview shows.

    Attributes:
        plans: a page of plans; the active ones unless the filter says otherwise.
        wanted, sort: how they are chosen.
        toolchain: of the newest study; a plan of another one is stale.
        running: (study, name, trials) of studies with running trials.
        newest: studies.
        leases: who holds what now.
        night: the last one.
    """

    plans: Page[PlanLine]
    wanted: PlanFilter
    sort: Sort
    toolchain: Toolchain | None
    running: Sequence[tuple[int, str, int]]
    newest: Page[StudyLine]
    leases: tuple[Lease, ...]
    night: Night | None

    def stale(self, line: PlanLine) -> bool:
        """Returns whether a plan was made by another toolchain than the one in use."""
        return self.toolchain is not None and line.toolchain_digest != self.toolchain.digest


def overview(request: Request) -> Response:
    """Shows the overview."""
    store: Store = request.app.state.store
    database = database_of(store)
    wanted, sort, cursor = _asked(request)
    page = OverviewPage(
        plans=plans.list_plans(database, wanted=wanted, sort=sort, cursor=cursor),
        wanted=wanted,
        sort=sort,
        toolchain=plans.newest_toolchain(database),
        running=studies.running_studies(database),
        newest=studies.list_studies(database, limit=NEWEST_STUDIES),
        leases=tuple(store.leases()[:LEASES]),
        night=last_night(store),
    )
    return site.answer(request, "overview.html", page, query=_query(wanted, sort), **CHOICES)


def table(request: Request) -> Response:
    """Shows the table of plans alone, for a page that is open already."""
    database = database_of(request.app.state.store)
    wanted, sort, cursor = _asked(request)
    page = OverviewPage(
        plans=plans.list_plans(database, wanted=wanted, sort=sort, cursor=cursor),
        wanted=wanted,
        sort=sort,
        toolchain=plans.newest_toolchain(database),
        running=(),
        newest=Page(rows=()),
        leases=(),
        night=None,
    )
    query = _query(wanted, sort)
    response = site.fragment(request, "_plans.html", page, query=query)
    at = {side.value: request.query_params.get(side.value, "") for side in Side}
    response.headers["HX-Push-Url"] = site.link(request, "overview", query | at)
    return response


def download(request: Request) -> Response:
    """Sends every plan that the filter lets through as CSV."""
    database = database_of(request.app.state.store)
    wanted, sort, _ = _asked(request)
    columns = [name for name in PlanLine.__dataclass_fields__ if name != "toolchain_digest"]

    def rows() -> Iterator[list[Any]]:
        cursor: Cursor | None = None
        while True:
            page = plans.list_plans(database, wanted=wanted, sort=sort, cursor=cursor, limit=1000, counted=False)
            for line in page.rows:
                yield [getattr(line, name) for name in columns] + [line.speedup]
            if page.next is None:
                return
            cursor = Cursor(key=page.next)

    return csv_answer("plans", [*columns, "speedup"], rows())


def last_night(store: Store) -> Night | None:
    """Returns the last night, or None if there was none."""
    found = store.nights(limit=1)
    if not found:
        return None
    (night,) = found
    try:
        report = NightReport.from_json(night.document)
    except InvalidValue:
        return Night(id=night.id, state=night.state, must_look=night.must_look, report=None)
    counts = {ending: len(report.ended(ending)) for ending in Ending}
    return Night(
        id=night.id,
        state=night.state,
        must_look=night.must_look,
        report=report,
        improved=report.improved[:NIGHT_ENTRIES],
        regressed=report.regressed[:NIGHT_ENTRIES],
        failed=report.ended(Ending.FAILED, Ending.IMPOSSIBLE)[:NIGHT_ENTRIES],
        alarms=report.alarms[:NIGHT_ENTRIES],
        counts=tuple((ending, count) for ending, count in counts.items() if count),
    )


ANY = "any"
CHOICES: dict[str, Any] = {"states": list(PlanState), "evidences": [Evidence.PREDICTED, Evidence.MEASURED]}


def _asked(request: Request) -> tuple[PlanFilter, Sort, Cursor | None]:
    query = request.query_params
    every = query.get("state") == ANY
    chosen = None if every else state.read_word(query, "state", PlanState) or PlanState.ACTIVE
    wanted = PlanFilter(
        state=chosen, evidence=state.read_word(query, "evidence", Evidence), text=state.read_text(query)
    )
    return wanted, state.read_sort(query, plans.SORTS, plans.NEWEST_FIRST), state.read_cursor(query)


def _query(wanted: PlanFilter, sort: Sort) -> dict[str, str]:
    return {
        "state": ANY if wanted.state is None else "" if wanted.state is PlanState.ACTIVE else wanted.state.value,
        "evidence": wanted.evidence or "",
        "text": wanted.text,
        "sort": state.write_sort(sort, plans.NEWEST_FIRST),
    }
