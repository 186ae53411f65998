"""The placement of a plan or a trial: the slice under it, beside the order that JAX would have taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import site
from adapters.web.pages.drawings import shown
from adapters.web.pages.kept import Kept
from adapters.web.pages.plan import find_plan
from adapters.web.pages.state import read_number
from adapters.web.pages.trial import compiled_program, find_trial, prediction_of
from adapters.web.pictures import svg
from adapters.web.pictures.scene import Scene, compared
from adapters.web.pictures.slices import MOST_CHIPS, SlicePicture, draw
from storage.views.studies import find_study
from storage.views.view import database_of
from tuner.calibration.records import constants
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.placements.default import jax_default, row_major
from tuner.placements.placement import Placement
from tuner.slices.slice import Coords, Slice
from tuner.stores import Store, Study, Trial
from tuner.timeline.prediction import MOST_LINKS, LinkTraffic

OTHERS = ("default", "row-major", "none")
"""What a placement is set beside."""

EVERY = "every"
"""All groups of a collective alike."""

LINKS = 20
"""Links that the table lists."""

MOST_BYTES = 170_000
"""Of the pictures of one page."""

_NAMES = {"default": "JAX's default", "row-major": "row-major"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One placement on the page.

    Attributes:
        name: ``this placement``, ``JAX's default`` or ``row-major``.
        description: in words.
        positions: (chip coordinates, core) of each mesh position.
        step_s: predicted; None where it does not run, with the reason in `refusal`.
        links: that carry something, the busiest first; `by_axes` says which collectives load each.
        ring: chip coordinates of the group that is looked at, in the order of its ring.
    """

    name: str
    description: str
    positions: Sequence[tuple[Coords, int]]
    step_s: float | None
    refusal: str
    links: Sequence[LinkTraffic]
    ring: Sequence[Sequence[Coords]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPage:
    """All that the page of a placement shows.

    Attributes:
        of: ``plan 3`` or ``trial 17 of study 1``.
        study_id: of the study; `trial` the number in it.
        plan_id: of the plan; None if the page is a trial's.
        workload, slice_name: what it is for.
        axes: mesh axes with their sizes; `axis` colours the chips.
        collectives: (key, name, groups, seconds of the step on the network) to look at; `collective` is chosen.
        group: of it, or ``every``.
        beside: what it is set beside.
        plane: the z that is drawn; None for all.
        planes: how many there are where one has to choose, else 1.
        placements: the placement, and what it is set beside.
    """

    of: str
    study_id: int
    trial: int
    plan_id: int | None
    workload: str
    slice_name: str
    axes: Sequence[tuple[str, int]]
    axis: str
    collectives: Sequence[tuple[str, str, int, float]]
    collective: str
    group: str
    beside: str
    plane: int | None
    planes: int
    placements: Sequence[Shown]

    @property
    def groups(self) -> int:
        """Groups of the chosen collective."""
        return next((groups for key, _, groups, _ in self.collectives if key == self.collective), 0)

    @property
    def query(self) -> Mapping[str, str]:
        """The state as the URL holds it."""
        plane = "" if self.plane is None else str(self.plane)
        named = {"axis": self.axis, "collective": self.collective, "group": self.group}
        return {**named, "beside": self.beside, "plane": plane}


_SCENES: Kept[Scene] = Kept(16)


def of_plan(request: Request) -> Response:
    """Shows the placement of a plan."""
    store: Store = request.app.state.store
    stored = find_plan(store, request.path_params["plan_id"])
    study_id = find_study(database_of(store), stored.plan.study)
    if study_id is None:
        raise HTTPException(404, f"the study of plan {stored.id} is not in this database")
    study, trial = find_trial(store, study_id, stored.plan.trial)
    return _answer(request, study, trial, stored.plan.placement, plan_id=stored.id)


def of_trial(request: Request) -> Response:
    """Shows the placement of a trial."""
    store: Store = request.app.state.store
    study, trial = find_trial(store, request.path_params["study_id"], request.path_params["number"])
    if trial.placement is None:
        raise HTTPException(404, f"trial {trial.number} of study {study.id} was not placed")
    return _answer(request, study, trial, trial.placement, plan_id=None)


def _answer(request: Request, study: Study, trial: Trial, placement: Placement, *, plan_id: int | None) -> Response:
    scene = _scene(request.app.state.store, study, trial, placement)
    page, pictures = _page(request, scene, study, trial, placement, plan_id)
    if request.url.path.endswith(".svg"):
        drawing = svg.beside([draw(picture) for picture in pictures])
        name = f"placement-{f'plan-{plan_id}' if plan_id else f'trial-{study.id}-{trial.number}'}.svg"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        body = svg.document(drawing, standalone=True)
        return site.tagged(request, Response(body, media_type="image/svg+xml", headers=headers))
    drawn = [shown(draw(picture), f"placement-{index}") for index, picture in enumerate(pictures)]
    # Two pictures of a placement without any symmetry are large: the second one then comes on a page of its own.
    apart = sum(map(len, drawn)) > MOST_BYTES
    kind, path = (
        ("plan", {"plan_id": plan_id}) if plan_id else ("trial", {"study_id": study.id, "number": trial.number})
    )
    return site.answer(
        request,
        "placement.html",
        page,
        pictures=drawn[:1] if apart else drawn,
        apart=apart,
        most_links=LINKS,
        others=[(key, _NAMES.get(key, "nothing")) for key in OTHERS],
        kind=kind,
        path=path,
    )


def _scene(store: Store, study: Study, trial: Trial, placement: Placement) -> Scene | None:
    """Returns the compiled program on its slice; None where the database holds none that fits."""
    program = compiled_program(store, study, trial)
    if program is None or program.devices != len(placement.devices):
        return None
    links = tuple(map(Degraded.parse, study.key.constraints.links))
    used = constants(store, study.key.slice.generation_name, study.key.toolchain)
    key = (study.key.digest, trial.candidate.digest, trial.lowered_digest, used.digest)
    try:
        return _SCENES.get(key, lambda: Scene(program, study.key.slice, trial.candidate.layout, links, used))
    except InvalidValue:  # they do not belong together
        return None


def _page(
    request: Request, scene: Scene | None, study: Study, trial: Trial, placement: Placement, plan_id: int | None
) -> tuple[PlacementPage, list[SlicePicture]]:
    query, slice_, layout = request.query_params, study.key.slice, trial.candidate.layout
    beside = query.get("beside", "") or OTHERS[0]
    if beside not in OTHERS:
        raise InvalidValue(f"beside={beside[:40]!r} is not known; legal: {', '.join(OTHERS)}")
    plane = read_number("plane", query["plane"]) if query.get("plane") else None
    group = query.get("group", "") or "0"
    if plane is not None and (len(slice_.shape) < 3 or plane >= slice_.shape[2]):
        raise InvalidValue(f"{slice_.name} has no plane z={plane}")
    named = [("this placement", placement)]
    if beside == "default":
        named.append((_NAMES[beside], jax_default(slice_, layout, jax=study.key.toolchain.jax_release)))
    elif beside == "row-major":
        named.append((_NAMES[beside], row_major(slice_)))
    chosen = scene.choice(query.get("collective", "")) if scene is not None else None
    key, axis = "" if chosen is None else chosen.key, query.get("axis", "")
    if scene is not None:
        one = None
        if group != EVERY:
            # Of a collective with fewer groups than the one that was looked at before, the last.
            last = len(scene.walks(chosen, placement)) - 1 if chosen is not None else 0
            one = min(read_number("group", group), max(0, last))
            group = str(one)
        pictures = [
            scene.picture(other, title=name, colour=axis, collective=key, group=one, plane=plane)
            for name, other in named
        ]
    else:
        named = named[:1]
        pictures = [_stored(trial, slice_, placement, axis, plane)]
    full = compared(pictures)
    many = len(slice_.shape) == 3 and slice_.num_chips > MOST_CHIPS
    page = PlacementPage(
        of=f"plan {plan_id}" if plan_id else f"trial {trial.number} of study {study.id}",
        study_id=study.id,
        trial=trial.number,
        plan_id=plan_id,
        workload=study.key.workload.name,
        slice_name=slice_.name,
        axes=layout.axes,
        axis=pictures[0].colour,
        collectives=_collectives(scene, placement),
        collective=key,
        group=group,
        beside=beside if scene is not None else "none",
        plane=plane,
        planes=slice_.shape[2] if many else 1,
        placements=[_shown(scene, other, picture) for (_, other), picture in zip(named, pictures, strict=True)],
    )
    return page, [picture.scaled(full) for picture in pictures]


def _collectives(scene: Scene | None, placement: Placement) -> list[tuple[str, str, int, float]]:
    choices = () if scene is None else scene.choices
    return [(c.key, c.name, len(scene.walks(c, placement)), c.seconds) for c in choices if scene is not None]


def _stored(trial: Trial, slice_: Slice, placement: Placement, axis: str, plane: int | None) -> SlicePicture:
    """Returns the picture that a trial's own prediction gives where its program is not there: loads but no rings."""
    prediction = prediction_of(trial.details)
    axes = trial.candidate.layout.axes
    return SlicePicture(
        title="this placement",
        slice_=slice_,
        axes=axes,
        devices=placement.devices,
        colour=axis or max(axes, key=lambda one: one[1])[0],
        links=() if prediction is None else prediction.busy_links,
        step_s=trial.predicted_s if trial.predicted_s is not None and math.isfinite(trial.predicted_s) else None,
        plane=plane,
    )


def _shown(scene: Scene | None, placement: Placement, picture: SlicePicture) -> Shown:
    slice_ = picture.slice_
    return Shown(
        name=picture.title,
        description=placement.description or "as listed",
        positions=[(slice_.coords(device), slice_.core(device)) for device in placement.devices],
        step_s=picture.step_s,
        refusal="" if scene is None else scene.refusal(placement),
        links=picture.links[:MOST_LINKS],
        ring=[[slice_.coords(device) for device in route.devices] for route in picture.routes if route.chosen],
    )
