"""Predictions of whole steps, kept in the repository before they were compared, against what others published."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def steps() -> Any:
    spec = importlib.util.spec_from_file_location("published_steps", ROOT / "benchmarks/published_steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(steps: Any) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Prediction and publication of each row."""
    published = {row["id"]: row for row in json.loads(steps.PUBLISHED.read_text())["rows"]}
    return {each["row"]: (each, published[each["row"]]) for each in json.loads(steps.PREDICTIONS.read_text())}


def test_a_published_step_is_within_20_percent_and_its_shares_within_10_points(steps: Any, rows: Any) -> None:
    predicted, published = rows["wan14b-720p81-v6e8-torchax"]
    assert predicted["step_s"] == pytest.approx(published["s_per_step"], rel=0.2)
    shares = steps.shares(published)
    assert shares == {"self_attention": pytest.approx(0.668), "all_to_all": pytest.approx(0.067)}
    for name, share in shares.items():
        assert predicted[f"{name}_share"] == pytest.approx(share, abs=0.1)


def test_every_kept_prediction_says_what_it_stands_on(steps: Any, rows: Any) -> None:
    runs = {run.row: run for run in steps.RUNS}
    assert rows.keys() <= runs.keys()
    for name, (predicted, published) in rows.items():
        assert "libtpu" in predicted["toolchain"]
        for axis, size in runs[name].axes.items():
            assert f"{axis}={size}" in predicted["layout"]
        parts = predicted["attention_s"] + predicted["compute_s"] + predicted["exposed_s"]
        assert parts == pytest.approx(predicted["step_s"], rel=0.01)
        if "upper bound" in published.get("use", ""):
            assert predicted["step_s"] < published["s_per_step"]
