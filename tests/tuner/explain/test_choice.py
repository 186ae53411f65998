from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.test_funnel import NO
from tuner.errors import InvalidValue
from tuner.explain.choice import parse_choice
from tuner.layouts.layout import Candidate, Layout
from tuner.rejections import RejectReason, Stage
from tuner.stores import Trial, TrialState

LIKE = Layout.of({"cfg": 1, "ring": 2, "ulysses": 4}, {"blocks": "1024,2048,1024", "weights": "replicated", "depth": 3})


def test_sizes_options_and_flags_are_told_apart_by_their_names() -> None:
    choice = parse_choice("ulysses=4, cfg=2,blocks=512,512,512,depth=4,xla_a=true", LIKE)
    assert choice.axes == (("cfg", 2), ("ring", 1), ("ulysses", 4))
    assert choice.options == {"blocks": "512,512,512", "depth": 4}
    assert choice.flags == {"xla_a": "true"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cfg=2", ["2 is not the 8 devices", "multiply"]),
        ("cfg=2,ring=2,ulysses=4", ["2 x 2 x 4 is not the 8 devices"]),
        ("weights=x", ["1 is not the 8 devices"]),
        ("cfg=two,ulysses=4", ["cfg=two", "whole number from 1"]),
        ("cfg=0,ulysses=4", ["cfg=0"]),
        ("ulises=8", ["no axis or option 'ulises'", "did you mean 'ulysses'?", "weights"]),
        ("flag=8", ["no axis or option 'flag'", "xla_..."]),
        ("8", ["'8' is not like cfg=2,ulysses=4"]),
        ("", ["'' is not like"]),
    ],
)
def test_what_is_no_choice_says_what_would_be(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_choice(text, LIKE)
    for word in words:
        assert word in str(caught.value)


@given(st.text(alphabet="cfgulyse=,12 x_", max_size=20))
def test_no_text_ends_in_anything_else(text: str) -> None:
    try:
        choice = parse_choice(text, LIKE)
    except InvalidValue:
        return
    assert choice.axes[0][1] * choice.axes[1][1] * choice.axes[2][1] == 8


def trial(number: int, predicted_s: float | None, **options: str) -> Trial:
    return Trial(
        number=number,
        candidate=Candidate(layout=Layout.of({"cfg": 2, "ring": 1, "ulysses": 4}, options)),
        state=TrialState.REJECTED if predicted_s is None else TrialState.COMPLETE,
        stage=Stage.PLACE,
        predicted_s=predicted_s,
        rejection=NO if predicted_s is None else None,
    )


def test_what_is_open_is_taken_at_its_fastest() -> None:
    trials = [trial(0, 0.5, weights="a"), trial(1, 0.4, weights="b"), trial(2, None, weights="c")]
    best = lambda text: parse_choice(text, LIKE).best(trials)  # noqa: E731
    assert best("cfg=2,ulysses=4") == trials[1]
    assert best("cfg=2,ulysses=4,weights=a") == trials[0]
    assert best("cfg=2,ulysses=4,weights=c") == trials[2]  # it was rejected, and that is the answer
    assert best("cfg=2,ulysses=4,xla_a=1") is None
    slow = replace(trials[2], rejection=replace(NO, reason=RejectReason.BOUND))
    assert parse_choice("cfg=2,ulysses=4,weights=c", LIKE).best([slow]) is None  # it would run
    assert best("ring=8") is None
