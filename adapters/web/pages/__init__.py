"""The pages of the dashboard: each with a JSON twin, and its state in its URL."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from adapters.web.pages import compare, overview, plan, studies, theme, trial
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
        Route("/theme", theme.choose, name="theme", methods=["POST"]),
    ]
