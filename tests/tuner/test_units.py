import pytest

from tuner.errors import InvalidValue
from tuner.units import parse_bytes, parse_seconds, spell_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1.5 min", 90.0), ("6h", 21600.0), ("7d", 604800.0), ("250ms", 0.25), ("12", 12.0), (12, 12.0)],
)
def test_times(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "count"), [("2GiB", 2 << 30), ("1.5 kb", 1500), ("7", 7), (7, 7), ("3B", 3)])
def test_sizes(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 weeks", "1e3s", "nan", "True"])
def test_what_is_no_time_or_size_says_what_would_be(text: str) -> None:
    with pytest.raises(InvalidValue, match="legal: a number with ms"):
        parse_seconds(text)
    with pytest.raises(InvalidValue, match="legal: a number with B"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.25 s"), (4.21, "4.21 s"), (720, "12 min"), (12000, "3 h 20 min"), (7200, "2 h")]
)
def test_times_are_spelled(seconds: float, text: str) -> None:
    assert spell_seconds(seconds) == text
