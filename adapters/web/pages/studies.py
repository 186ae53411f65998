"""The list of studies."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import site, state
from storage.views import studies as views
from storage.views.paging import Page, Sort
from storage.views.studies import StudyLine
from storage.views.view import database_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiesPage:
    """A page of studies, and how they are chosen."""

    studies: Page[StudyLine]
    text: str
    sort: Sort


def studies(request: Request) -> Response:
    """Shows the studies."""
    query = request.query_params
    text, sort = state.read_text(query), state.read_sort(query, views.SORTS, views.NEWEST_FIRST)
    found = views.list_studies(
        database_of(request.app.state.store), text=text, sort=sort, cursor=state.read_cursor(query)
    )
    page = StudiesPage(studies=found, text=text, sort=sort)
    return site.answer(
        request, "studies.html", page, query={"text": text, "sort": state.write_sort(sort, views.NEWEST_FIRST)}
    )
