"""One study: how it went, its funnel, who works on it, and its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import drawings, site, state
from adapters.web.pages.download import csv_answer
from adapters.web.pages.importance import Importance, Importances
from adapters.web.pages.kept import Kept
from storage.views import trials as trial_views
from storage.views.agreement import Agreement, agreement
from storage.views.history import Coordinates, Mark, Pair, coordinates, history, pairs
from storage.views.paging import Cursor, Page, Side, Sort
from storage.views.studies import StudyCounts, count_study, siblings
from storage.views.trials import SORTS, TrialFilter, TrialLine, best_first
from storage.views.view import database_of
from storage.views.workers import Worker, workers
from tuner.calibration.records import constants
from tuner.canonical import digest
from tuner.plans.plan import Evidence
from tuner.rejections import RejectReason, Stage
from tuner.stores import Store, TrialState

FRESH_S = 1.0
"""Seconds that the pictures of a study are shown without a look at what was written since."""

LIVE_S, IDLE_S = 3, 30
"""Seconds between two looks at a study that runs, and at one that does not."""

MOST_PAIRS = 400
"""Pairs of a prediction and a measurement that are drawn."""

CHOICES: dict[str, Any] = {
    "states": list(TrialState),
    "stages": list(Stage),
    "reasons": list(RejectReason),
    "evidences": list(Evidence),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """What the pictures of a study are drawn from, at one `revision` of it."""

    revision: str
    history: Sequence[Mark]
    pairs: Sequence[Pair]
    agreement: Agreement | None
    coordinates: Sequence[Coordinates]
    best: TrialLine | None
    baselines: Sequence[TrialLine]
    siblings: Sequence[tuple[int, Evidence]]
    pictures: Mapping[str, Markup] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The part of the page that changes while a study runs.

    Attributes:
        counts: the study and its funnel.
        revision: changes with everything that is shown here.
        charts: of the trials.
        importance: of the parameters.
        workers: who works on it now.
    """

    counts: StudyCounts
    revision: str
    charts: Charts
    importance: Importance
    workers: Sequence[Worker]

    @property
    def running(self) -> bool:
        """True while somebody works on it."""
        return any(worker.alive for worker in self.workers) or self.counts.in_state(TrialState.RUNNING) > 0

    @property
    def every_s(self) -> int:
        """Seconds until the next look."""
        behind = self.charts.revision != _revision(self.counts) or self.importance.state == "computing"
        return LIVE_S if self.running or behind else IDLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsTable:
    """A page of trials, and how they are chosen."""

    trials: Page[TrialLine]
    wanted: TrialFilter
    sort: Sort


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """All that the page of a study shows."""

    progress: Progress
    table: TrialsTable


class StudyPages:
    """The pages of studies, with what is kept between requests."""

    def __init__(self) -> None:
        self.importances = Importances()
        self._charts: Kept[Charts] = Kept()

    def page(self, request: Request) -> Response:
        """Shows a study."""
        progress = self._progress(request)
        default = best_first(progress.counts.study.key.evidence)
        wanted, sort, cursor = _asked(request, default)
        page = StudyPage(progress=progress, table=_table(request, wanted, sort, cursor))
        return site.answer(
            request,
            "study.html",
            page,
            progress=progress,
            funnel=drawings.funnel_rows(progress.counts),
            table=page.table,
            trials_revision=_revision(progress.counts),
            query=_query(wanted, sort, default),
            polls=cursor is None,
            **CHOICES,
        )

    def live(self, request: Request) -> Response:
        """Shows what changes, or nothing (204) if nothing has since the revision that the asker saw."""
        progress = self._progress(request)
        if request.query_params.get("seen") == progress.revision:
            return Response(status_code=204)
        rows = drawings.funnel_rows(progress.counts)
        return site.fragment(request, "_progress.html", progress, progress=progress, funnel=rows)

    def trials(self, request: Request) -> Response:
        """Shows the table of trials alone."""
        counts = _counts(request)
        revision, seen = _revision(counts), request.query_params.get("seen")
        if seen == revision:
            return Response(status_code=204)
        default = best_first(counts.study.key.evidence)
        wanted, sort, cursor = _asked(request, default)
        table = _table(request, wanted, sort, cursor)
        query = _query(wanted, sort, default)
        response = site.fragment(
            request,
            "_trials.html",
            table,
            table=table,
            study_id=counts.study.id,
            revision=revision,
            running=counts.in_state(TrialState.RUNNING) > 0,
            query=query,
            polls=cursor is None,
            **CHOICES,
        )
        if not seen:
            at = {side.value: request.query_params.get(side.value, "") for side in Side}
            page = site.link(request, "study", query | at, study_id=counts.study.id)
            response.headers["HX-Push-Url"] = page
        return response

    def download(self, request: Request) -> Response:
        """Sends every trial that the filter lets through as CSV."""
        counts = _counts(request)
        wanted, sort, _ = _asked(request, best_first(counts.study.key.evidence))
        lines = trial_views.all_trials(database_of(request.app.state.store), counts.study.id, wanted=wanted, sort=sort)
        return csv_answer(f"study-{counts.study.id}-trials", CSV_COLUMNS, map(_csv_row, lines))

    def close(self) -> None:
        """Ends what runs in the background."""
        self.importances.close()

    def _progress(self, request: Request) -> Progress:
        store: Store = request.app.state.store
        database = database_of(store)
        counts = _counts(request)
        study_id, revision = counts.study.id, _revision(counts)
        charts = self._charts.get(study_id, partial(_read_charts, store, counts), revision=revision, fresh_s=FRESH_S)
        url = database.engine.url.render_as_string(hide_password=False)
        predicted = sum(count.predicted for count in counts.counts)
        importance = self.importances.get(url, study_id, revision, predicted)
        working = workers(store, database, counts.study)
        parts = [
            revision,
            charts.revision,
            importance.state,
            importance.revision,
            [[w.owner, w.number, w.alive] for w in working],
        ]
        return Progress(
            counts=counts, revision=digest(parts)[:16], charts=charts, importance=importance, workers=working
        )


CSV_COLUMNS = (
    "number",
    "state",
    "stage",
    "baseline",
    "layout",
    "compiler_options",
    "bound_s",
    "estimate_s",
    "predicted_s",
    "measured_s",
    "evidence",
    "compute_s",
    "attention_s",
    "exposed_s",
    "memory_bytes",
    "compile_s",
    "reject_stage",
    "reject_reason",
    "reject_detail",
    "host",
    "started_at",
    "finished_at",
)


def _csv_row(line: TrialLine) -> list[Any]:
    return [line.numbers.get(name) if name in _NUMBERS else getattr(line, name) for name in CSV_COLUMNS]


_NUMBERS = {"compute_s", "attention_s", "exposed_s", "memory_bytes", "compile_s"}


def study_counts(request: Request) -> StudyCounts:
    """Returns the counted study that a path names. Raises HTTPException (404) if there is none."""
    study_id = request.path_params["study_id"]
    try:
        if study_id >= 2**31:
            raise KeyError(study_id)
        return count_study(database_of(request.app.state.store), study_id)
    except KeyError:
        raise HTTPException(404, f"there is no study {study_id}") from None


_counts = study_counts


def _revision(counts: StudyCounts) -> str:
    """Names a state of a study: the number of its changes, and its counts for writers that do not count."""
    parts = [site.plain(counts.counts), counts.changes, counts.refusals, counts.study.proved, counts.study.spent_s]
    return digest(parts)[:16]


def _read_charts(store: Store, counts: StudyCounts) -> Charts:
    database, study_id, key = database_of(store), counts.study.id, counts.study.key
    relative_error = constants(store, key.slice.generation_name, key.toolchain).relative_error
    measured = key.evidence is Evidence.MEASURED
    known = sum(count.measured if measured else count.predicted for count in counts.counts)
    compared = pairs(database, study_id)
    agreed = agreement([(pair.predicted_s, pair.measured_s) for pair in compared])
    sample = compared[:: len(compared) // MOST_PAIRS + 1]
    marks, found = history(database, study_id, known, key.evidence), coordinates(database, study_id)
    best = trial_views.list_trials(database, study_id, sort=best_first(key.evidence), limit=1, counted=False).rows
    baselines = trial_views.baselines(database, study_id)
    steps = [(line.baseline, line.numbers["default_step_s"]) for line in baselines if "default_step_s" in line.numbers]
    pictures = {
        "funnel": drawings.draw_funnel(drawings.funnel_rows(counts)),
        "history": drawings.draw_history(marks, counts.study.created_at, steps) if marks else Markup(),
        "scatter": drawings.draw_scatter(
            sample,
            agreed.rank if agreed is not None else None,
            relative_error,
        )
        if sample
        else Markup(),
        "coordinates": drawings.draw_coordinates(found),
    }
    return Charts(
        revision=_revision(counts),
        history=marks,
        pairs=sample,
        agreement=agreed,
        coordinates=found,
        best=best[0] if best and (best[0].predicted_s, best[0].measured_s) != (None, None) else None,
        siblings=siblings(database, study_id),
        baselines=baselines,
        pictures=pictures,
    )


def _table(request: Request, wanted: TrialFilter, sort: Sort, cursor: Cursor | None) -> TrialsTable:
    database = database_of(request.app.state.store)
    found = trial_views.list_trials(database, request.path_params["study_id"], wanted=wanted, sort=sort, cursor=cursor)
    return TrialsTable(trials=found, wanted=wanted, sort=sort)


def _asked(request: Request, default: Sort) -> tuple[TrialFilter, Sort, Cursor | None]:
    query = request.query_params
    wanted = TrialFilter(
        state=state.read_word(query, "state", TrialState),
        stage=state.read_word(query, "stage", Stage),
        reason=state.read_word(query, "reason", RejectReason),
        evidence=state.read_word(query, "evidence", Evidence),
        text=state.read_text(query),
    )
    return wanted, state.read_sort(query, SORTS, default), state.read_cursor(query)


def _query(wanted: TrialFilter, sort: Sort, default: Sort) -> dict[str, str]:
    return {
        "state": wanted.state or "",
        "stage": wanted.stage or "",
        "reason": wanted.reason or "",
        "evidence": wanted.evidence or "",
        "text": wanted.text,
        "sort": state.write_sort(sort, default),
    }
