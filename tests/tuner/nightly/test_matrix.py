import contextlib
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import InvalidValue
from tuner.nightly.matrix import Matrix, read_matrix
from tuner.search.settings import SamplerName

FULL = """
budget = "6h"
device_budget = "30min"
margin = 0.02
alarm = 0.05
refresh = "30d"
lock_ttl = "2min"

[defaults]
slices = ["v5litepod-8", "v5e-4x4"]
budget = "90s"

[[matrix]]
models = ["wan2.1-t2v-1.3b", "wan2.1-t2v-14b"]
shapes = ["832x480x81", "832x480x21"]
priority = 10
device_budget = "5min"
reserve_hbm = "2GiB"

[[matrix]]
models = "examples.block:workload"
slices = ["v5e-2x2"]
budget = 30
trials = 7
videos = 2
guidance = false
links = ["1,0:0,0=0.5"]
measure = "never"
sampler = "tpe"
"""


def read(text: str) -> Matrix:
    return read_matrix(tomllib.loads(text))


def test_tables_are_multiplied_out_in_the_order_of_the_file() -> None:
    matrix = read(FULL)
    assert (matrix.budget_s, matrix.device_budget_s) == (21600.0, 1800.0)
    assert (matrix.margin, matrix.alarm, matrix.refresh_s, matrix.lock_ttl_s) == (0.02, 0.05, 30 * 86400.0, 120.0)
    assert len(matrix.entries) == 2 * 2 * 2 + 1
    first, last = matrix.entries[0], matrix.entries[-1]
    assert first.name == "wan2.1-t2v-1.3b@832x480x81 on v5e-2x4 (reserve=2GiB)"
    assert (first.priority, first.budget_s, first.device_budget_s, first.measure) == (10, 90.0, 300.0, "auto")
    assert first.spec.parameters == {"shape": "832x480x81"}
    assert [entry.slice_name for entry in matrix.entries[:2]] == ["v5e-2x4", "v5e-4x4"]
    assert last.name == "examples.block:workload on v5e-2x2 (videos=2; no-guidance; links=0,0:1,0=0.5)"
    assert last.spec.parameters == {"videos": 2, "guidance": False}
    assert (last.budget_s, last.max_trials, last.measure, last.sampler) == (30.0, 7, "never", SamplerName.TPE)
    assert last.constraints.links == ("0,0:1,0=0.5",)


SMALL = {"models": ["m"], "slices": ["v5e-2x2"]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, ["nothing to tune", "[[matrix]]"]),
        ({"matrix": []}, ["nothing to tune"]),
        ({"matrix": {"models": ["m"]}}, ["matrix = ", "legal is a list of tables"]),
        ({"matrix": [SMALL], "buget": "6h"}, ["unknown key buget", "did you mean 'budget'?", "device_budget"]),
        ({"matrix": [SMALL | {"shape": "1x1x1"}]}, ["unknown key matrix[0].shape", "did you mean 'shapes'?"]),
        ({"matrix": [SMALL], "budget": "soon"}, ["budget = 'soon'", "legal: a number with ms, s, min, h or d"]),
        ({"matrix": [SMALL], "budget": 0}, ["budget = 0", "more than 0"]),
        ({"matrix": [SMALL], "budget": True}, ["budget = true", "such as '10min'"]),
        ({"matrix": [SMALL], "margin": 1.5}, ["margin = 1.5", "less than 1"]),
        ({"matrix": [SMALL | {"models": []}]}, ["matrix[0].models = []", "at least one"]),
        ({"matrix": [{"models": ["m"]}]}, ["matrix[0].slices is missing"]),
        ({"matrix": [{"slices": ["v5e-2x2"]}]}, ["matrix[0].models is missing"]),
        ({"matrix": [SMALL | {"models": [1]}]}, ["matrix[0].models = [1]", "list of texts"]),
        ({"matrix": [SMALL | {"models": ["m", "m"]}]}, ["m is there more than once"]),
        (
            {"matrix": [SMALL | {"slices": ["v5e-2x2", "v5e-3x3"]}]},
            ["matrix[0].slices[1] = 'v5e-3x3'", "2x2, 2x4, 4x4"],
        ),
        ({"matrix": [SMALL | {"slices": ["v5f-2x2"]}]}, ["matrix[0].slices[0] = 'v5f-2x2'", "nearest: v5e"]),
        ({"matrix": [SMALL | {"links": ["0,0"]}]}, ["matrix[0].links[0] = '0,0'", "0,0:1,0=0.5"]),
        ({"matrix": [SMALL | {"priority": "high"}]}, ["matrix[0].priority = 'high'", "whole number"]),
        ({"matrix": [SMALL | {"priority": True}]}, ["matrix[0].priority = true"]),
        ({"matrix": [SMALL | {"trials": 0}]}, ["matrix[0].trials = 0", "from 1"]),
        ({"matrix": [SMALL | {"reserve_hbm": "2 chips"}]}, ["matrix[0].reserve_hbm = '2 chips'", "GiB"]),
        ({"matrix": [SMALL | {"measure": "maybe"}]}, ["matrix[0].measure = 'maybe'", "auto, never, require"]),
        ({"matrix": [SMALL | {"sampler": []}]}, ["matrix[0].sampler = []", "best-first, tpe, random"]),
        ({"matrix": [SMALL | {"guidance": "no"}]}, ["matrix[0].guidance = 'no'", "true or false"]),
        ({"matrix": [SMALL], "defaults": {"priorty": 1}}, ["unknown key defaults.priorty", "'priority'"]),
        ({"matrix": [SMALL], "defaults": 3}, ["defaults = 3", "legal is a table"]),
        ({"matrix": [SMALL, SMALL]}, ["m on v5e-2x2 is in matrix[0] and again in matrix[1]"]),
        ({"matrix": [SMALL | {"slices": ["v5e-2x4", "v5litepod-8"]}]}, ["m on v5e-2x4 is in matrix[0] and again"]),
    ],
)
def test_errors_name_the_key_the_value_and_what_would_be_legal(document: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_matrix(document)
    for word in words:
        assert word in str(caught.value)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_KEYS = st.sampled_from(
    ["models", "slices", "shapes", "budget", "matrix", "defaults", "priority", "links", "margin", "x"]
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_KEYS, _VALUES, max_size=5))
def test_no_document_ends_in_anything_but_a_matrix_or_an_explanation(document: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidValue):
        assert read_matrix(document).entries
