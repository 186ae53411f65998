"""Numbers, times and texts as people read them."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from adapters.web.evaluation import evaluate, parameters
from adapters.web.pages import words
from tests.storage.samples import NOON, candidate


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "—"),
        (math.nan, "—"),
        (math.inf, "∞"),
        (-math.inf, "\N{MINUS SIGN}∞"),
        (0.0, "0.0"),
        (0.4739, "473.9"),
        (12.5, "12,500.0"),
        (-0.001, "\N{MINUS SIGN}1.0"),
        (1e300, "1.000e+303"),
    ],
)
def test_milliseconds(value: float | None, expected: str) -> None:
    assert words.ms(value) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("exposed_s", 0.0278, ("27.8", "ms")),
        ("compile_s", 25.5, ("25.5", "s")),
        ("wait_s", 250.0, ("250.0", "s")),
        ("memory_bytes", 3 * 2**30, ("3.00", "GiB")),
        ("placements", 10227.0, ("10,227", "")),
        ("ratio", 1.03125, ("1.0312", "")),
        ("exposed_s", math.inf, ("∞", "ms")),
        ("anything", None, ("—", "")),
    ],
)
def test_quantities_carry_the_unit_of_their_name(name: str, value: float | None, expected: tuple[str, str]) -> None:
    assert words.quantity(name, value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0.0 s"), (99, "99.0 s"), (600, "10 min"), (7200, "2.0 h"), (864_000, "10 d")]
)
def test_durations(seconds: float, expected: str) -> None:
    assert words.duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("ago", "expected"),
    [(-5, "0 min"), (59, "0 min"), (3599, "59 min"), (6 * 3600, "6 h"), (10 * 86_400, "10 d"), (4e8, "4,629 d")],
)
def test_ages(ago: float, expected: str) -> None:
    assert words.age(NOON - timedelta(seconds=ago), NOON).replace("\N{NO-BREAK SPACE}", " ") == expected


def test_texts_are_shortened_where_they_are_seen() -> None:
    assert words.shortened("x" * 10, 10) == "x" * 10
    assert words.shortened("x" * 11, 10) == "x" * 9 + "…"
    assert len(words.shortened("\u202e" * 500, 50)) <= 50


def test_importance_of_what_decides() -> None:
    points = [({"cfg": 1 + n % 2, "blocks": f"b{n % 3}", "same": 1}, float(n % 2)) for n in range(30)]
    found = evaluate(points)
    shares = dict(found["shares"])
    assert found["state"] == "ready"
    assert set(shares) == {"cfg", "blocks"}
    assert shares["cfg"] > 0.9
    assert sum(shares.values()) == pytest.approx(1.0)


def test_importance_says_why_there_is_none() -> None:
    assert evaluate([({"cfg": 1}, 1.0)] * 3)["state"] == "too-few"
    assert evaluate([({"cfg": 1}, 1.0)] * 9)["state"] == "alike"
    assert evaluate([({"cfg": n % 2}, math.inf) for n in range(9)])["state"] == "too-few"
    assert evaluate([({"cfg": 1}, 1.0)] * 5 + [({"cfg": 1, "new": 2}, 1.0)] * 5)["state"] == "alike"


def test_a_candidate_as_parameters() -> None:
    assert parameters(candidate(8, block=3).to_json()) == {
        "cfg": 2,
        "ulysses": 4,
        "weights": "replicated",
        "block": 3,
        "xla_tpu_enable_x": "true",
    }
