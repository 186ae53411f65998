"""Commands that are about one stored plan, which is named by its id or by what it was made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from adapters.cli import options
from tuner.errors import PlanNotFound
from tuner.network.cost import Degraded
from tuner.plans.lookup import Query
from tuner.plans.plan import Plan, StoredPlan
from tuner.plans.programs import program_of
from tuner.ports import Compiled
from tuner.stores import Store

F = TypeVar("F", bound=Callable[..., Any])


def plan(function: F) -> F:
    """Adds the argument PLAN, a plan's id or a model, and the options that say which plan of a model is meant."""
    for option in (
        options.links,
        click.option("--reserve-hbm", type=options.Bytes(), default=0, help="With a model: HBM that must stay free."),
        click.option("--slice", "slice_name", metavar="NAME", default="", help="With a model: for example v5e-2x4."),
        click.option("--no-guidance", is_flag=True, help="With a model: distilled variants."),
        click.option(
            "--videos", type=click.IntRange(min=1), default=1, show_default=True, help="With a model: videos at once."
        ),
        click.option("--shape", metavar="WxHxF", default="", help="With a model: width, height and frames."),
    ):
        function = option(function)
    return click.argument("plan")(function)


def find(
    store: Store,
    plan: str,
    *,
    shape: str,
    videos: int,
    no_guidance: bool,
    slice_name: str,
    reserve_hbm: int,
    links: tuple[Degraded, ...],
) -> StoredPlan:
    """Returns the plan that the arguments name. Raises PlanNotFound with the reasons if there is none."""
    if plan.isdecimal():
        return store.plan(int(plan))
    query = Query(
        model=plan,
        shape=shape,
        slice_name=options.require_slice_name(slice_name),
        variant=options.variant(videos, no_guidance),
        constraints=options.constraints(reserve_hbm, links),
    )
    answer = store.lookup(query)
    if answer.plan is None:
        raise PlanNotFound("; ".join(answer.reasons))
    return answer.plan


def compiled(store: Store, plan: Plan) -> Compiled:
    """Returns the program of a plan, found by its trial. Raises PlanNotFound if the database does not hold it."""
    found = program_of(store, plan)
    if found is None:
        raise PlanNotFound(
            f"the compiled program of trial {plan.trial} of study {plan.study!r} is not in this database; "
            "run `meshwright tune` for it against this database"
        )
    return found
