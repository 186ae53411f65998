from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.web.pages.kept import Kept


def test_a_value_is_made_once_however_many_ask_at_once() -> None:
    kept: Kept[object] = Kept()
    made, go = [], threading.Event()

    def make() -> object:
        go.wait(10)
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(kept.get, "key", make) for _ in range(8)]
        go.set()
        assert {id(one.result()) for one in asked} == {id(made[0])}
    assert len(made) == 1


def test_a_value_of_another_revision_is_made_again_unless_it_is_fresh() -> None:
    now = [0.0]
    kept: Kept[str] = Kept(clock=lambda: now[0])
    assert kept.get("key", lambda: "a", revision=1, fresh_s=1) == "a"
    assert kept.get("key", lambda: "b", revision=2, fresh_s=1) == "a"
    now[0] = 1.0
    assert kept.get("key", lambda: "b", revision=2, fresh_s=1) == "b"
    now[0] = 100.0
    assert kept.get("key", lambda: "c", revision=2, fresh_s=1) == "b"
    assert kept.get("key", lambda: "c", revision=3) == "c"


def test_the_least_used_is_forgotten() -> None:
    kept: Kept[int] = Kept(most=2)
    for key in (1, 2, 1, 3):
        kept.get(key, lambda key=key: key)
    assert kept.get(1, lambda: -1) == 1
    assert kept.get(2, lambda: -2) == -2


def test_what_fails_is_tried_again() -> None:
    kept: Kept[int] = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: 1 // 0)
    assert kept.get("key", lambda: 1) == 1
