import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidValue
from tuner.layouts.layout import Layout
from tuner.layouts.space import Choice, Dimension, Space, enumerate_layouts, factorizations
from tuner.rejections import Rejection, RejectReason, Stage

sizes = st.lists(st.integers(2, 12), max_size=4, unique=True).map(lambda more: (1, *sorted(more)))


@given(st.lists(sizes, min_size=1, max_size=4), st.integers(1, 64))
def test_factorizations_are_all_products_that_match(domains: list[tuple[int, ...]], devices: int) -> None:
    dimensions = tuple(Dimension(name=f"d{i}", sizes=domain) for i, domain in enumerate(domains))
    expected = [chosen for chosen in itertools.product(*domains) if math.prod(chosen) == devices]
    assert list(factorizations(devices, dimensions)) == expected


def test_every_layout_is_yielded_or_refused_with_its_reason() -> None:
    space = Space(
        dimensions=(Dimension(name="cfg", sizes=(1, 2)), Dimension(name="ulysses", sizes=(1, 2, 4))),
        options=(Choice(name="weights", values=("replicated", "cfg")),),
        tuned=(Choice(name="blocks", values=("512", "1024")),),
    )

    def verdict(layout: Layout) -> Rejection | None:
        if layout.option("weights") == "cfg" and layout.size("cfg") == 1:
            return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.ILLEGAL_OPTIONS, detail="cfg is 1")
        return None

    outcomes = list(enumerate_layouts(space, 4, verdict))
    assert [str(outcome) for outcome in outcomes if isinstance(outcome, Layout)] == [
        "ulysses=4 [blocks=512 weights=replicated]",
        "cfg=2 ulysses=2 [blocks=512 weights=replicated]",
        "cfg=2 ulysses=2 [blocks=512 weights=cfg]",
    ]
    assert [outcome.detail for outcome in outcomes if isinstance(outcome, Rejection)] == ["cfg is 1"]


def test_domains_check_themselves() -> None:
    with pytest.raises(InvalidValue, match="ascending from 1"):
        Dimension(name="cfg", sizes=(2, 1))
    with pytest.raises(InvalidValue, match="without repeats"):
        Choice(name="weights", values=("a", "a"))
