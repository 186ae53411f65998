import json
import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.plans.samples import make_plan
from tuner.errors import InvalidValue
from tuner.placements.placement import Placement
from tuner.plans.plan import Baseline, Plan
from tuner.slices.names import parse_slice


@given(st.permutations(range(8)), st.floats(1e-6, 1e3), st.none() | st.integers(0, 1 << 40))
def test_round_trip_through_json_text(devices: list[int], step_s: float, memory_bytes: int | None) -> None:
    plan = make_plan(placement=Placement(devices=tuple(devices)), step_s=step_s, memory_bytes=memory_bytes)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json(), allow_nan=False))) == plan


def test_a_twisted_torus_stays_one_and_older_documents_are_of_plain_ones() -> None:
    plan = make_plan(slice=parse_slice("v5p-4x4x8_twisted"))
    document = plan.to_json()
    assert Plan.from_json(document) == plan
    del document["slice"]["twisted"]
    assert Plan.from_json(document) == make_plan(slice=parse_slice("v5p-4x4x8"))


def test_the_document_holds_coordinates_and_no_device_ids() -> None:
    document = make_plan().to_json()
    assert document["placement"]["positions"][0] == [0, [1, 3], 0]
    assert document["axis_types"] == {"cfg": "auto", "ulysses": "auto"}
    assert document["evidence"] == "predicted"


def test_speedups() -> None:
    plan = make_plan(
        baselines=(
            Baseline(name="A", layout="", step_s=0.6),
            Baseline(name="B", layout="", step_s=None, reason="does not fit"),
        )
    )
    assert plan.speedup("A") == pytest.approx(1.2)
    assert plan.speedup("B") is None
    assert plan.speedup("C") is None


def test_a_newer_schema_is_refused_and_unknown_fields_are_ignored() -> None:
    document = make_plan().to_json()
    assert Plan.from_json(document | {"colour": "blue"}) == make_plan()
    with pytest.raises(InvalidValue, match="schema_version 2; this version reads 1"):
        Plan.from_json(document | {"schema_version": 2})


DERIVED = {"schema_version", "axis_types", "predicted_s", "measured_s", "ratio"}


@pytest.mark.parametrize("field", sorted(make_plan().to_json().keys() - DERIVED))
def test_a_document_with_a_part_missing_is_refused(field: str) -> None:
    document = make_plan().to_json()
    del document[field]
    with pytest.raises(InvalidValue, match=field):
        Plan.from_json(document)


def test_a_plan_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidValue, match="8 devices"):
        make_plan(placement=Placement(devices=(0, 1)))
    with pytest.raises(InvalidValue, match="aware"):
        make_plan(created_at=datetime(2026, 1, 1))


def test_a_deploy_loads_neither_jax_nor_optuna() -> None:
    code = (
        "import sys, tuner.plans.plan, tuner.plans.lookup, tuner.plans.toolchain, storage\n"
        "print(sorted({'jax', 'jaxlib', 'optuna', 'sqlalchemy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
