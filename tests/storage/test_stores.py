from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event

import storage
from storage.memory import MemoryStore
from tests.storage.contracts import StoreContract, query
from tests.storage.samples import NEW, NOON, OLD, content_key, grid, plan, study_key, trial, workload
from tuner.plans.plan import Constraints
from tuner.stores import Store


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlStore(StoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with storage.open_store(url) as store:
            yield store


SHAPES = ("832x480x81", "832x480x49", "480x272x81", "1280x720x81", "")


def test_the_lookup_in_sql_answers_as_the_plain_ladder_does(url: str) -> None:
    dice = random.Random(7)
    toolchains = [NEW, OLD, replace(NEW, libtpu="0.0.51")]
    wanted = lambda: Constraints(reserve_hbm_bytes=dice.choice([0, 1, 2]), objective=dice.choice(["step-latency", "x"]))  # noqa: E731
    plain = MemoryStore(clock=lambda: NOON)
    with storage.open_store(url) as store:
        for number in range(50):
            made = plan(
                1.0 + number,
                workload=workload(
                    shape=dice.choice(SHAPES), revision=dice.choice(["r1", "r2"]), variant=dice.choice(["", "v"])
                ),
                slice=grid(2, 4, wrap=(False, dice.random() < 0.5)),
                toolchain=dice.choice(toolchains),
                constraints=wanted(),
            )
            assert plain.promote(made).id == store.promote(made).id
        rungs = set()
        for _ in range(200):
            asked = query(
                shape=dice.choice([*SHAPES, "64x64x1", "odd"]),
                variant=dice.choice(["", "v"]),
                toolchain=dice.choice([None, *toolchains, replace(NEW, jax="1")]),
                revision=dice.choice([None, "r1", "r2", "r3"]),
                constraints=dice.choice([wanted(), Constraints(reserve_hbm_bytes=9)]),
            )
            ours, expected = store.lookup(asked), plain.lookup(asked)
            assert (ours.rung, ours.reasons) == (expected.rung, expected.reasons)
            assert (ours.plan and ours.plan.id) == (expected.plan and expected.plan.id)
            rungs.add(ours.rung)
        assert len(rungs) == 5


def count_statements(call) -> int:
    statements = []

    def note(connection, cursor, statement, parameters, context, many) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        call()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return sum(not statement.startswith("BEGIN") for statement in statements)


def test_statements_do_not_grow_with_what_is_stored(url: str) -> None:
    with storage.open_store(url) as store:
        study = store.open_study(study_key())

        def calls() -> list[int]:
            many = len(store.trials(study.id)) or 1
            return [
                count_statements(call)
                for call in (
                    lambda: store.studies(),
                    lambda: store.open_study(study_key()),
                    lambda: store.trials(study.id),
                    lambda: store.save_trials(study.id, [trial(number) for number in range(many)]),
                    lambda: store.screened([content_key(str(number)) for number in range(many)]),
                    lambda: store.lookup(query()),
                    lambda: store.lookup(query(toolchain=OLD)),
                    lambda: store.lookup(query(shape="1x1x1")),
                    lambda: store.plans(active_only=False),
                    lambda: store.promote(plan()),
                )
            ]

        store.save_trials(study.id, [trial(0)])
        store.promote(plan())
        few = calls()
        store.save_trials(study.id, [trial(number) for number in range(50)])
        for number in range(20):
            store.open_study(study_key(space_revision=str(number)))
            store.promote(plan(workload=workload(shape=f"{number + 2}x1x1")))
        assert calls() == few
        assert max(few[5:8]) <= 3


def test_an_old_toolchains_plans_do_not_slow_the_lower_rungs(url: str) -> None:
    """Plans of every toolchain stay active; a near shape is found among the newest of each shape only."""
    with storage.open_store(url) as store:
        for number in range(30):
            last = store.promote(plan(toolchain=replace(NEW, libtpu=f"0.0.{number}")))
        read = []
        original = type(last.plan).from_json

        def counted(document):
            read.append(document)
            return original(document)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("storage.sql.plans.Plan.from_json", counted)
            assert store.lookup(query(shape="832x480x49")).plan == last
        assert len(read) == 1
