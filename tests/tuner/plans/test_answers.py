import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.models.known import informed
from tests.tuner.plans.samples import TOOLCHAIN, make_plan, stored
from tuner.errors import InvalidValue
from tuner.plans import answers
from tuner.plans.lookup import Answer, Query, Rung, find

QUERY = Query(model="wan", shape="832x480x81", slice_name="v5e-2x4", toolchain=TOOLCHAIN)
PLAN = stored(make_plan())
NONE = find(QUERY, lambda model, slice_name: [])
FOUND = find(QUERY, lambda model, slice_name: [PLAN])
BASELINE = informed(Query(model="wan2.1-t2v-1.3b", shape="832x480x81", slice_name="v5e-4x4"), NONE)


@pytest.mark.parametrize("answer", [FOUND, NONE, BASELINE], ids=["found", "none", "baseline"])
def test_there_and_back(answer: Answer) -> None:
    document = json.loads(json.dumps(answers.to_json(answer), allow_nan=False))
    assert answers.from_json(document) == answer


def test_three_rungs_were_tried() -> None:
    assert [answer.rung for answer in (FOUND, NONE, BASELINE)] == [Rung.EXACT, Rung.NONE, Rung.BASELINE]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(answers.to_json(FOUND))), JSON)
def test_a_changed_part_is_read_or_refused(name: str, value: Any) -> None:
    with contextlib.suppress(InvalidValue):
        answers.from_json(answers.to_json(FOUND) | {name: value})


def test_a_newer_plan_is_refused_with_its_version() -> None:
    document = answers.to_json(FOUND)
    document["plan"]["schema_version"] = 99
    with pytest.raises(InvalidValue, match="99"):
        answers.from_json(document)
