"""One plan: its versions, what a lookup says of it, how to apply it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adapters.models.wan import maxdiffusion
from adapters.models.wan.maxdiffusion import Settings
from adapters.web.pages import site
from adapters.web.pages.trial import prediction_of
from storage.views.plans import PlanLine, newest_toolchain, versions
from storage.views.studies import find_study
from storage.views.view import database_of
from tuner.errors import InvalidValue, PlanNotFound
from tuner.plans import files
from tuner.plans.lookup import Answer, Query
from tuner.plans.plan import Constraints, StoredPlan
from tuner.plans.toolchain import Toolchain
from tuner.stores import Store
from tuner.timeline.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """All that the page of a plan shows.

    Attributes:
        stored: the version.
        versions: of its key, newest first; `superseded_by` is the one that took its place.
        study_id: of the study that it came from; None if that is not in this database.
        prediction: where its time goes.
        toolchain: of the newest study; what the lookup asked with.
        answer: what a lookup of its workload and slice says now.
    """

    stored: StoredPlan
    versions: Sequence[PlanLine]
    superseded_by: PlanLine | None
    study_id: int | None
    prediction: Prediction | None
    toolchain: Toolchain | None
    answer: Answer


def plan(request: Request) -> Response:
    """Shows a plan."""
    store: Store = request.app.state.store
    database = database_of(store)
    stored = find_plan(store, request.path_params["plan_id"])
    found = stored.plan
    every = versions(database, stored.id)
    toolchain = newest_toolchain(database)
    page = PlanPage(
        stored=stored,
        versions=every,
        superseded_by=next((line for line in reversed(every) if line.version > stored.version), None),
        study_id=find_study(database, found.study),
        prediction=prediction_of(found.details),
        toolchain=toolchain,
        answer=store.lookup(
            Query(
                model=found.workload.model,
                shape=found.workload.shape,
                slice_name=found.slice.name,
                variant=found.workload.variant,
                toolchain=toolchain,
                constraints=found.constraints,
            )
        ),
    )
    # Only where the study is there too, whose trial says which program the plan places.
    placement_link = "" if page.study_id is None else site.link(request, "plan.placement", plan_id=stored.id)
    return site.answer(
        request,
        "plan.html",
        page,
        python=apply_lines(stored),
        settings=nearest_settings(stored),
        placement_link=placement_link,
    )


def export(request: Request) -> Response:
    """Sends the plan as a file, as `meshwright plans export` writes it."""
    stored = find_plan(request.app.state.store, request.path_params["plan_id"])
    form = request.query_params.get("as", "json")
    match form:
        case "json":
            body, kind, name = files.dump(stored.plan), "application/json", f"plan-{stored.id}.json"
        case "maxdiffusion":
            body, kind, name = maxdiffusion.render(stored.plan), "text/x-python", f"plan_{stored.id}_maxdiffusion.py"
        case _:
            raise InvalidValue(f"as={form[:40]!r} is not known; legal: json, maxdiffusion")
    return Response(body, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def apply_lines(stored: StoredPlan) -> str:
    """Returns the Python lines that put the plan's lookup to work on a TPU host."""
    workload, constraints = stored.plan.workload, stored.plan.constraints
    asked = [f"model={workload.model!r}", f"shape={workload.shape!r}", f"slice_name={stored.plan.slice.name!r}"]
    imports = ["import storage", "from adapters.jax.apply import apply", "from tuner.plans.lookup import Query"]
    if workload.variant:
        asked.append(f"variant={workload.variant!r}")
    if constraints != Constraints():
        imports.append("from tuner.plans.plan import Constraints")
        parts = [f"reserve_hbm_bytes={constraints.reserve_hbm_bytes}"] if constraints.reserve_hbm_bytes else []
        parts += [f"links={constraints.links!r}"] if constraints.links else []
        asked.append(f"constraints=Constraints({', '.join(parts)})")
    return "\n".join(
        [
            *imports,
            "",
            "with storage.open_store() as store:",
            f"    answer = store.lookup(Query({', '.join(asked)}))",
            "live = apply(answer.plan)  # live.mesh, live.shardings, live.axis_types, live.compiler_options",
        ]
    )


def nearest_settings(stored: StoredPlan) -> Settings | None:
    """Returns the MaxDiffusion settings that come nearest; None for models that it does not run."""
    try:
        return maxdiffusion.settings(stored.plan)
    except (InvalidValue, ValueError):
        return None


def find_plan(store: Store, plan_id: int) -> StoredPlan:
    """Returns a plan. Raises HTTPException (404) if there is none."""
    try:
        if plan_id >= 2**31:
            raise PlanNotFound(f"no plan {plan_id}")
        return store.plan(plan_id)
    except PlanNotFound:
        raise HTTPException(404, f"there is no plan {plan_id}") from None
