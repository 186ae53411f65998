"""The contract of `tuner.calibration.records` as tests; a store inherits it and gives itself as the fixture `store`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any

from tests.storage.samples import NEW, NOON, NOON_ELSEWHERE, OLD
from tuner.calibration.calibration import calibration
from tuner.calibration.fitted import Constant, Fit, HeldBack
from tuner.calibration.observation import Observation, Origin
from tuner.calibration.records import constants
from tuner.placements.placement import Placement
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.slices.names import parse_slice
from tuner.stores import Store

SLICE = parse_slice("v5e-2x2")
REDUCE = Collective(
    name="ar", kind=CollectiveKind.ALL_REDUCE, operand_bytes=1 << 20, result_bytes=1 << 20, groups=((0, 1, 2, 3),)
)


def observation(**changes: Any) -> Observation:
    values: dict[str, Any] = {
        "what": "all-reduce",
        "name": "all-reduce of 4, 1 MiB",
        "slice": SLICE,
        "program": Program(devices=4, schedule=(REDUCE,)),
        "placement": Placement(devices=(0, 1, 3, 2), description="a ring"),
        "links": ("0,0:1,0=0.5",),
        "samples_s": (1e-5, 1.1e-5, 1.2e-5),
        "origin": Origin.BENCHMARK,
        "device_kind": "TPU v5 lite",
        "host": "host-1",
        "toolchain": NEW,
        "observed_at": NOON,
    }
    return Observation(**(values | changes))


def fit(**changes: Any) -> Fit:
    start = calibration("v5e")
    values: dict[str, Any] = {
        "generation": "v5e",
        "toolchain": NEW,
        "start": start,
        "calibration": replace(start, hop_s=2e-6, launches=(("all-reduce", 9e-6),)),
        "constants": (Constant(name="hop_s", before=1e-6, after=2e-6, uncertainty=0.01),),
        "held_back": (HeldBack(what="all-reduce", rows=4, before=0.3, after=0.02),),
        "rows": 4,
        "used": True,
        "reason": "better",
        "fitted_at": NOON,
    }
    return Fit(**(values | changes))


class CalibrationStoreContract:
    def test_observations_come_back_whole_and_oldest_first(self, store: Store) -> None:
        kept = [observation(), observation(samples_s=(2e-5,), origin=Origin.PRODUCTION, links=())]
        store.save_observations(kept[:1])
        store.save_observations(kept[1:])
        assert list(store.observations("v5e")) == kept
        assert store.observations("v5e")[0].seconds == 1.1e-5

    def test_nothing_is_replaced(self, store: Store) -> None:
        store.save_observations([observation(), observation()])
        assert len(store.observations("v5e", NEW)) == 2

    def test_generations_and_toolchains_are_apart(self, store: Store) -> None:
        v6e = replace(SLICE, generation_name="v6e")
        store.save_observations([observation(), observation(toolchain=OLD), observation(slice=v6e)])
        assert [each.toolchain for each in store.observations("v5e")] == [NEW, OLD]
        assert [each.toolchain for each in store.observations("v5e", OLD)] == [OLD]
        assert [each.slice for each in store.observations("v6e")] == [v6e]
        assert list(store.observations("v4")) == []

    def test_times_come_back_in_utc_and_odd_words_clean(self, store: Store) -> None:
        store.save_observations([observation(observed_at=NOON_ELSEWHERE, host="a\0b")])
        (found,) = store.observations("v5e")
        assert found.observed_at == NOON
        assert found.observed_at.tzinfo is UTC
        assert found.host == "a\N{REPLACEMENT CHARACTER}b"

    def test_a_fit_comes_back_whole(self, store: Store) -> None:
        store.save_fit(fit())
        assert list(store.fits()) == [fit()]

    def test_fits_are_history_newest_first(self, store: Store) -> None:
        first, second = fit(rows=1), fit(rows=2, used=False)
        store.save_fit(first)
        store.save_fit(second)
        store.save_fit(fit(generation="v6e", rows=3))
        assert [each.rows for each in store.fits()] == [3, 2, 1]
        assert list(store.fits("v5e")) == [second, first]
        assert list(store.fits("v5e", limit=1)) == [second]

    def test_searches_take_the_newest_used_fit_of_exactly_their_toolchain(self, store: Store) -> None:
        assert store.fit_in_use("v5e", NEW) is None
        assert constants(store, "v5e", NEW) == calibration("v5e")
        for each in (fit(rows=1), fit(rows=2), fit(rows=3, used=False), fit(rows=4, toolchain=OLD)):
            store.save_fit(each)
        found = store.fit_in_use("v5e", NEW)
        assert found is not None
        assert found.rows == 2
        assert constants(store, "v5e", NEW) == fit().calibration
        assert constants(store, "v6e", NEW) == calibration("v6e")
