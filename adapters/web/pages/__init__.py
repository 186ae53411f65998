"""The pages of the dashboard: each with a JSON twin, and its state in its URL."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.web.pages import compare, overview, placement, plan, studies, theme, trial
from adapters.web.pages.study import StudyPages


def routes() -> list[BaseRoute]:
    """Returns the routes of the pages."""
    study = StudyPages()
    of_study = "/studies/{study_id:int}"
    return [
        Route("/", overview.overview, name="overview"),
        Route("/overview.json", overview.overview, name="overview.json"),
        Route("/plans.csv", overview.download, name="plans.csv"),
        Route("/plans/table", overview.table, name="plans.table"),
        Route("/studies", studies.studies, name="studies"),
        Route("/studies.json", studies.studies, name="studies.json"),
        Route(of_study, study.page, name="study"),
        Route(f"{of_study}.json", study.page, name="study.json"),
        Route(f"{of_study}/live", study.live, name="study.live"),
        Route(f"{of_study}/trials", study.trials, name="study.trials"),
        Route(f"{of_study}/trials.csv", study.download, name="study.csv"),
        Route(f"{of_study}/trials/{{number:int}}", trial.trial, name="trial"),
        Route(f"{of_study}/trials/{{number:int}}.json", trial.trial, name="trial.json"),
        Route("/compare", compare.compare, name="compare"),
        Route("/compare.json", compare.compare, name="compare.json"),
        Route("/plans/{plan_id:int}", plan.plan, name="plan"),
        Route("/plans/{plan_id:int}.json", plan.plan, name="plan.json"),
        Route("/plans/{plan_id:int}/export", plan.export, name="plan.export"),
        *_placements("plan", "/plans/{plan_id:int}/placement", placement.of_plan),
        *_placements("trial", f"{of_study}/trials/{{number:int}}/placement", placement.of_trial),
        Route("/theme", theme.choose, name="theme", methods=["POST"]),
    ]


def _placements(of: str, path: str, page: Callable[[Request], Response]) -> list[BaseRoute]:
    """Returns the page of a placement, its JSON twin, and its pictures as a file."""
    return [Route(path + kind, page, name=f"{of}.placement{kind}") for kind in ("", ".json", ".svg")]
