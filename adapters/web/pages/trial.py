"""One trial: what was tried, every number of every stage, why it ended, where its time and memory go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adapters.web.pages import drawings, site
from adapters.web.pages.kept import Kept
from storage.views.studies import head_of
from storage.views.trials import whole_trial
from storage.views.view import database_of
from tuner.calibration.records import constants
from tuner.errors import InvalidValue
from tuner.network.cost import Degraded
from tuner.ports import Compiled
from tuner.program.program import Memory, Program
from tuner.stores import ContentKey, Store, Study, Trial
from tuner.timeline.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage:
    """All that the page of a trial shows.

    Attributes:
        study: its study.
        trial: with its details.
        prediction: the details as a prediction; None if they are none.
        memory: parts of HBM at the peak, as compiled; None if unknown.
        hbm_bytes: of a device, less what the constraints keep free.
        program: as compiled; None if the database does not hold it. It is not part of the JSON twin.
    """

    study: Study
    trial: Trial
    prediction: Prediction | None
    memory: Memory | None
    hbm_bytes: int
    program: Program | None = field(repr=False)

    @property
    def time_parts(self) -> list[tuple[str, float]]:
        """(what, seconds) that make up the step."""
        prediction = self.prediction
        if prediction is None:
            return []
        parts = [
            ("matrix products", prediction.matmul_s),
            ("attention", prediction.attention_s),
            ("memory-bound operations", prediction.memory_s),
            ("layout changes", prediction.copy_s),
            ("other kernels", prediction.kernel_s),
            ("exposed communication", prediction.exposed_communication_s),
        ]
        return [(name, seconds) for name, seconds in parts if seconds > 0]


def trial(request: Request) -> Response:
    """Shows a trial."""
    store: Store = request.app.state.store
    study_id, number = request.path_params["study_id"], request.path_params["number"]
    study, found = find_trial(store, study_id, number)
    program = compiled_program(store, study, found)
    page = TrialPage(
        study=study,
        trial=found,
        prediction=prediction_of(found.details),
        memory=None if program is None else program.memory,
        hbm_bytes=study.key.slice.generation.hbm_bytes - study.key.constraints.reserve_hbm_bytes,
        program=program,
    )
    return site.answer(
        request,
        "trial.html",
        page,
        memory_parts=drawings.memory_parts(page.memory),
        pictures={
            "memory": drawings.draw_memory(
                page.memory, study.key.slice.generation.hbm_bytes, study.key.constraints.reserve_hbm_bytes
            )
            if page.memory is not None
            else Markup(),
            **_drawn_step(store, study, found, program),
        },
        against=request.query_params.get("against", ""),
        placement_link=""
        if found.placement is None
        else site.link(request, "trial.placement", study_id=study_id, number=number),
    )


_STEPS: Kept[Mapping[str, Markup]] = Kept(64)


def _drawn_step(store: Store, study: Study, found: Trial, program: Program | None) -> Mapping[str, Markup]:
    """Returns the timeline and the roofline of a trial; nothing where its program or placement is not known."""
    placement = found.placement
    if program is None or placement is None or program.devices != study.key.slice.num_devices:
        return {"timeline": Markup(), "roofline": Markup()}
    links = tuple(map(Degraded.parse, study.key.constraints.links))
    used = constants(store, study.key.slice.generation_name, study.key.toolchain)
    key = (study.key.digest, found.candidate.digest, found.lowered_digest, placement.devices, used.digest)
    try:
        return _STEPS.get(
            key,
            lambda: drawings.draw_step(program, placement, study.key.slice, found.candidate.layout, used, links),
        )
    except InvalidValue:  # the program and the placement do not belong together
        return {"timeline": Markup(), "roofline": Markup()}


def find_trial(store: Store, study_id: int, number: int) -> tuple[Study, Trial]:
    """Returns a trial and its study. Raises HTTPException (404) if there is none."""
    database = database_of(store)
    if study_id < 2**31 and number < 2**31:
        study = head_of(database, study_id)
        found = None if study is None else whole_trial(store, study_id, number)
        if study is not None and found is not None:
            return study, found
    raise HTTPException(404, f"there is no trial {number} of study {study_id}")


def compiled_program(store: Store, study: Study, trial: Trial) -> Program | None:
    """Returns the program that a trial was compiled to, or None if the database does not hold it."""
    if not trial.lowered_digest or trial.predicted_s is None:
        return None
    key = ContentKey(
        workload_digest=study.key.workload.digest,
        slice_name=study.key.slice.name,
        wrap=study.key.slice.wrap,
        toolchain_digest=study.key.toolchain.digest,
        candidate_digest=trial.candidate.digest,
    )
    found = store.compiled_program(trial.lowered_digest, key)
    return found.program if isinstance(found, Compiled) else None


def prediction_of(details: Mapping[str, Any]) -> Prediction | None:
    """Returns the prediction that a document holds, or None if it holds none or a part of one."""
    try:
        found = Prediction.from_json(details)
        times = (found.matmul_s, found.attention_s, found.memory_s, found.copy_s, found.kernel_s)
        readable = all(math.isfinite(seconds) for seconds in (*times, found.exposed_communication_s, found.step_s))
    except (KeyError, TypeError, ValueError):
        return None
    return found if readable else None
