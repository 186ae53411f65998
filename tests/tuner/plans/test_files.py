import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.plans.samples import make_plan
from tuner.canonical import digest
from tuner.errors import InvalidValue
from tuner.plans import files
from tuner.plans.plan import Plan

PLAN = make_plan()
TEXT = files.dump(PLAN)


def test_there_and_back() -> None:
    assert files.load(TEXT) == PLAN


def test_a_file_is_the_plans_document_and_its_digest() -> None:
    document = json.loads(TEXT)
    assert document.pop("sha256") == digest(document)
    assert Plan.from_json(document) == PLAN


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
def test_a_changed_character_is_found_unless_it_says_the_same(position: int, character: str) -> None:
    changed = TEXT[:position] + character + TEXT[position + 1 :]
    try:
        plan = files.load(changed)
    except InvalidValue:
        return
    assert plan == PLAN


@given(st.integers(0, len(TEXT.rstrip()) - 1))
def test_a_file_that_was_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InvalidValue, match="cut short"):
        files.load(TEXT[:length])


def test_a_newer_schema_is_refused_by_its_number_whatever_its_digest_is() -> None:
    with pytest.raises(InvalidValue, match=r"newer meshwright wrote this plan \(schema 7"):
        files.load(json.dumps(json.loads(TEXT) | {"schema_version": 7}))


def test_what_is_unknown_is_ignored_if_the_digest_covers_it() -> None:
    document = {name: part for name, part in json.loads(TEXT).items() if name != "sha256"} | {"later": 1}
    assert files.load(json.dumps(document | {"sha256": digest(document)})) == PLAN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (json.dumps(PLAN.to_json()), "no sha256"),
        (TEXT.replace('"step_s": 0.5', '"step_s": 0.4', 1), "changed since it was written"),
        ("[]", "is a JSON object"),
        ("", "no plan at all"),
        ("[" * 100_000, "no plan at all"),
        ('{"schema_version": 1, "sha256": "x", "a": NaN}', "strict JSON"),
        ('{"schema_version": 1, "sha256": "x", "a": "\\ud800"}', "strict JSON"),
    ],
)
def test_other_text_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        files.load(text)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"absent\.json: .*No such file"):
        files.read(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidValue, match=r"binary\.json"):
        files.read(tmp_path / "binary.json")
