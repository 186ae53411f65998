import subprocess
import sys
from dataclasses import replace

import pytest

from adapters.models.known import informed
from adapters.models.registry import resolve
from tests.tuner.plans.samples import make_plan, stored
from tuner.plans.lookup import Answer, Query, Rung, find
from tuner.plans.near import NOT_CHECKED
from tuner.plans.workload import WorkloadKey
from tuner.ports import WorkloadSpec
from tuner.slices.names import parse_slice

MODEL = "wan2.1-t2v-1.3b"
QUERY = Query(model=MODEL, shape="832x480x81", slice_name="v5e-2x4")
NEAR = stored(make_plan(workload=WorkloadKey(model=MODEL, shape="832x480x49")))


def asked(query: Query) -> Answer:
    return informed(query, find(query, lambda model, slice_name: [NEAR] if slice_name == "v5e-2x4" else []))


def test_a_shape_that_the_model_takes_is_legal_in_another_ones_plan() -> None:
    answer = asked(QUERY)
    assert (answer.rung, answer.plan) == (Rung.NEAR_SHAPE, NEAR)
    assert NOT_CHECKED not in answer.reasons
    assert any("takes this shape" in reason for reason in answer.reasons)


def test_a_shape_that_the_model_does_not_take_has_no_answer() -> None:
    answer = asked(replace(QUERY, shape="832x480x80"))
    assert (answer.rung, answer.plan) == (Rung.NONE, None)
    assert "832x480x81" in answer.reasons[0]


@pytest.mark.parametrize("guidance", [True, False])
@pytest.mark.parametrize("name", ["v5e-4x4", "v5e-1x1", "v5p-2x2x2"])
def test_without_a_plan_it_is_what_the_search_takes_as_baseline(name: str, guidance: bool) -> None:
    answer = asked(replace(QUERY, slice_name=name, variant="" if guidance else "no-guidance"))
    workload = resolve(WorkloadSpec(model=MODEL, parameters={"shape": "832x480x81", "guidance": guidance}))
    assert answer.rung is Rung.BASELINE
    assert answer.deployed is not None
    assert answer.deployed.layout == workload.baselines(parse_slice(name))["A"]
    assert len(answer.deployed.to_json()["placement"]["positions"]) == parse_slice(name).num_devices


def test_other_models_and_slices_are_left_alone() -> None:
    for query in (replace(QUERY, model="own.module:workload"), replace(QUERY, slice_name="v5e-9x9")):
        answer = find(query, lambda model, slice_name: [])
        assert informed(query, answer) == answer
    exact = find(replace(QUERY, shape="832x480x49"), lambda model, slice_name: [NEAR])
    assert informed(QUERY, exact) == exact


def test_it_needs_no_jax() -> None:
    code = "import sys; sys.modules['jax'] = None; import adapters.models.known"
    subprocess.run([sys.executable, "-c", code], check=True)
