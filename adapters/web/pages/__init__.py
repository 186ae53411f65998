"""The pages of the dashboard: each with a JSON twin, and its state in its URL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.web.pages import compare, overview, placement, plan, site, studies, theme, trial
from adapters.web.pages.study import StudyPages


def routes(closing: ExitStack) -> list[BaseRoute]:
    """Returns the routes of the pages. What runs in the background for them ends with `closing`."""
    site.prepare()
    study = StudyPages()
    closing.callback(study.close)
    of_study, of_plan = "/studies/{study_id:int}", "/plans/{plan_id:int}"
    of_trial = f"{of_study}/trials/{{number:int}}"
    return [
        *_twins("/", overview.overview, "overview"),
        Route("/overview.json", overview.overview, name="overview.json"),
        Route("/plans.csv", overview.download, name="plans.csv"),
        Route("/plans/table", overview.table, name="plans.table"),
        *_twins("/studies", studies.studies, "studies", "json"),
        *_twins(of_study, study.page, "study", "json"),
        Route(f"{of_study}/live", study.live, name="study.live"),
        Route(f"{of_study}/trials", study.trials, name="study.trials"),
        Route(f"{of_study}/trials.csv", study.download, name="study.csv"),
        *_twins(of_trial, trial.trial, "trial", "json"),
        *_twins(f"{of_trial}/placement", placement.of_trial, "trial.placement", "json", "svg"),
        *_twins(of_plan, plan.plan, "plan", "json"),
        *_twins(f"{of_plan}/placement", placement.of_plan, "plan.placement", "json", "svg"),
        Route(f"{of_plan}/export", plan.export, name="plan.export"),
        *_twins("/compare", compare.compare, "compare", "json"),
        Route("/theme", theme.choose, name="theme", methods=["POST"]),
    ]


def _twins(path: str, page: Callable[[Request], Response], name: str, *kinds: str) -> list[BaseRoute]:
    """Returns the routes of a page and of the same page in other forms."""
    return [Route(path, page, name=name), *(Route(f"{path}.{kind}", page, name=f"{name}.{kind}") for kind in kinds)]
