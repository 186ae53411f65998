from __future__ import annotations

from pathlib import Path

import pytest

import storage
from adapters.worker import compiles_with, searching, wants_measuring
from benchmarks import stub_study
from storage import migrations
from tuner.errors import InvalidValue
from tuner.plans.toolchain import Toolchain
from tuner.search.worker import Worker


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'meshwright.db'}"
    migrations.init(url)
    return url


def test_a_study_that_the_code_here_makes_another_one_of_is_left(url: str) -> None:
    said: list[str] = []
    with storage.open_store(url) as store:
        study = stub_study.publish(store, candidates=4)
        serve = searching(
            store,
            storage.optuna_storage(url),
            toolchain=stub_study.TOOLCHAIN,
            resolve=lambda spec: stub_study.StubWorkload(candidates=4, shape="2x2x2"),
            screener=stub_study.StubScreener(),
            compiler=stub_study.StubCompiler(),
        )
        (task,) = store.tasks()
        with pytest.raises(InvalidValue, match="another version here"):
            serve(task)
        Worker(store, serve, once=True, told=said.append).run()
        assert [found.id for found in store.studies()] == [study]
        assert "another version here" in said[-1]


def test_a_study_of_another_toolchain_is_named_with_the_difference(url: str) -> None:
    with storage.open_store(url) as store:
        stub_study.publish(store, candidates=4)
        (task,) = store.tasks()
    assert compiles_with(stub_study.TOOLCHAIN)(task) == ""
    newer = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.51")
    assert compiles_with(newer)(task) == "it is of another toolchain: libtpu 0.0.50.1 is now 0.0.51"


def test_of_a_closed_study_nothing_is_searched_and_what_it_found_is_measured(url: str) -> None:
    compiler, measured = Counted(), []
    with storage.open_store(url) as store:
        study = stub_study.publish(store, candidates=4)
        (task,) = store.tasks()
        parts = {
            "toolchain": stub_study.TOOLCHAIN,
            "resolve": stub_study.resolve,
            "screener": stub_study.StubScreener(),
            "compiler": compiler,
        }
        assert not wants_measuring(store, task)
        searching(store, storage.optuna_storage(url), **parts)(task)
        assert store.tasks() == []
        assert wants_measuring(store, task)
        compiled = compiler.count
        searching(store, storage.optuna_storage(url), **parts, measure=measured.append)(task)
        assert compiler.count == compiled == 4
        (predicted,) = measured
        assert len(predicted.trials) == 4
        assert predicted.key == store.study_key(study)
        assert store.open_study(predicted.key).proved


class Counted(stub_study.StubCompiler):
    count = 0

    def compile(self, *arguments, **options):
        self.count += 1
        return super().compile(*arguments, **options)
