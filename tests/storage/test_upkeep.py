from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event

import storage
from storage.sql.store import SqlStore
from tests.storage.samples import NOON, TOO_BIG, candidate, compiled, content_key, plan
from tuner.stores import ContentKey
from tuner.upkeep import Pruned

KEYS = [content_key(f"c{number}") for number in range(4)]


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlStore]:
    """A store with four programs, each a day older than the next, and a rejection."""
    with storage.open_store(url) as store:
        assert isinstance(store, SqlStore)
        for number, key in enumerate(KEYS):
            store.database.now = lambda number=number: NOON + timedelta(days=number)
            store.save_compiled(key, f"{number:02}" * 32, compiled(number))
        store.save_compiled(content_key("no"), "ff" * 32, TOO_BIG)
        store.database.now = lambda: NOON + timedelta(days=10)
        yield store


def present(store: SqlStore) -> list[ContentKey]:
    return [key for key in KEYS if store.compiled(key) is not None]


def test_what_fits_stays(store: SqlStore) -> None:
    pruned = store.prune_programs(most_bytes=1 << 20)
    assert (pruned.dropped, pruned.dropped_bytes, pruned.kept, pruned.needed_bytes) == (0, 0, 4, 0)
    assert pruned.kept_bytes > 0
    assert present(store) == KEYS


def test_the_longest_unused_go_first_and_no_more_than_must(store: SqlStore) -> None:
    store.use_program(KEYS[0])
    whole = store.prune_programs(most_bytes=1 << 20).kept_bytes
    pruned = store.prune_programs(most_bytes=whole - 1)
    assert pruned.dropped == 1
    assert pruned.kept_bytes == whole - pruned.dropped_bytes
    assert present(store) == [KEYS[0], KEYS[2], KEYS[3]]
    assert store.prune_programs(most_bytes=0) == Pruned(
        dropped=3, dropped_bytes=pruned.kept_bytes, kept=0, kept_bytes=0, needed_bytes=0
    )
    assert store.compiled(content_key("no")) == TOO_BIG


def test_a_dropped_program_is_compiled_and_kept_again(store: SqlStore) -> None:
    store.prune_programs(most_bytes=0)
    store.save_compiled(KEYS[0], "00" * 32, compiled(9))
    assert store.compiled(KEYS[0]) == compiled(9)


def test_what_active_plans_point_to_stays(store: SqlStore) -> None:
    """The slice, the wraparound and the toolchain count too: the same candidate elsewhere is another program."""
    made = plan()
    where = {
        "slice_name": made.slice.name,
        "wrap": made.slice.wrap,
        "toolchain_digest": made.toolchain.digest,
    }
    ours = content_key(made.candidate.digest, **where)
    elsewhere = content_key(made.candidate.digest)
    other = content_key(candidate(block=7).digest, **where)
    for number, key in enumerate((ours, elsewhere, other)):
        store.save_compiled(key, f"a{number}" * 32, compiled(number))
    first = store.promote(made)
    pruned = store.prune_programs(most_bytes=0)
    assert (pruned.dropped, pruned.kept) == (6, 1)
    assert pruned.kept_bytes == pruned.needed_bytes > 0
    assert store.compiled(ours) == compiled(0)
    store.promote(replace(made, candidate=candidate(block=7)))
    assert store.plan(first.id).state.value == "superseded"
    assert store.prune_programs(most_bytes=0).kept == 0


def test_a_use_is_written_once_a_day(store: SqlStore) -> None:
    written = []

    def note(connection, cursor, statement, parameters, context, many) -> None:
        if cursor.rowcount > 0 and statement.startswith("UPDATE"):
            written.append(statement)

    event.listen(store.database.engine, "after_cursor_execute", note)
    for _ in range(3):
        store.use_program(KEYS[0])
    store.use_program(content_key("unknown"))
    assert len(written) == 1
