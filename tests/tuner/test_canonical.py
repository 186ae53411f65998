import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.canonical import Fingerprint, canonical_json, digest
from tuner.errors import InvalidValue

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))
    assert digest(value) == digest(dict(reversed(value.items())))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(InvalidValue, match="strict JSON"):
        canonical_json({"step_s": value})


def test_a_fingerprint_says_what_changed() -> None:
    old = Fingerprint.of({"jax": "0.10.2", "libtpu": "0.0.42.1"})
    new = Fingerprint.of({"libtpu": "0.0.50.1", "jax": "0.10.2", "XLA_FLAGS": "--a"})
    assert old.differences(new) == ("XLA_FLAGS absent is now --a", "libtpu 0.0.42.1 is now 0.0.50.1")
    assert old.differences(old) == ()
    assert old.hex != new.hex
