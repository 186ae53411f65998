"""The contract of `tuner.nightly.nights` as tests; a store inherits it and gives itself as the fixture `store`."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.storage.samples import NOON, NOON_ELSEWHERE
from tuner.nightly.nights import NightState
from tuner.stores import Store


def night(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "state": NightState.RUNNING,
        "must_look": False,
        "started_at": NOON,
        "finished_at": None,
        "document": {"entries": [{"name": "wan", "wall_s": 1.5}]},
    }
    return values | changes


class NightStoreContract:
    def test_a_night_comes_back_whole(self, store: Store) -> None:
        number = store.save_night(None, **night())
        found = store.night(number)
        assert (found.id, found.state, found.must_look, found.finished_at) == (number, NightState.RUNNING, False, None)
        assert found.started_at == NOON
        assert found.document == {"entries": [{"name": "wan", "wall_s": 1.5}]}

    def test_saving_an_id_again_replaces_the_night(self, store: Store) -> None:
        number = store.save_night(None, **night())
        ended = night(state=NightState.COMPLETE, must_look=True, finished_at=NOON_ELSEWHERE, document={"entries": []})
        assert store.save_night(number, **ended) == number
        (found,) = store.nights()
        assert (found.state, found.must_look, found.document) == (NightState.COMPLETE, True, {"entries": []})
        assert found.finished_at == NOON
        assert found.finished_at is not None
        assert found.finished_at.tzinfo is UTC

    def test_nights_come_newest_first_and_no_more_than_asked_for(self, store: Store) -> None:
        numbers = [store.save_night(None, **night()) for _ in range(4)]
        assert [found.id for found in store.nights()] == numbers[::-1]
        assert [found.id for found in store.nights(limit=2)] == numbers[:1:-1]

    def test_a_night_that_is_not_there_is_a_key_error(self, store: Store) -> None:
        with pytest.raises(KeyError, match="no night 7"):
            store.night(7)
        with pytest.raises(KeyError, match="no night 7"):
            store.save_night(7, **night())
        assert store.nights() == []

    def test_odd_documents_are_kept_as_strict_json(self, store: Store) -> None:
        number = store.save_night(None, **night(document={"step_s": math.inf, "why": "a\0b"}))
        assert store.night(number).document == {"step_s": "Infinity", "why": "a\N{REPLACEMENT CHARACTER}b"}

    def test_what_comes_back_is_the_callers(self, store: Store) -> None:
        number = store.save_night(None, **night())
        store.night(number).document["entries"].clear()
        assert store.night(number).document["entries"]

    def test_times_without_a_zone_are_refused(self, store: Store) -> None:
        with pytest.raises(Exception, match="naive"):
            store.save_night(None, **night(started_at=datetime(2026, 1, 1)))
