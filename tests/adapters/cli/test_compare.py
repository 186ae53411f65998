"""`compare` and `explain` on a plan whose compiled program is in the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner, Result

import storage
from adapters.cli.main import cli
from adapters.jax.pool import CompilePool
from adapters.search import tune
from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tests.tuner.search.test_funnel import SLICE, TOOLCHAIN
from tuner.errors import InvalidValue, PlanNotFound, UnknownName
from tuner.layouts.layout import Candidate
from tuner.plans.toolchain import installed_toolchain
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.funnel import Search
from tuner.search.settings import Settings

CHOOSABLE = """
import jax
from adapters.jax.workload import Argument, FunctionWorkload
from tuner.layouts.space import Dimension

workload = FunctionWorkload(
    model="choosable",
    function=lambda s, w, x: s.constrain(jax.nn.gelu(x @ w), "batch", "mlp"),
    arguments=(
        Argument(shape=(1024, 4096), names=(None, "mlp")),
        Argument(shape=(4096, 1024), names=("batch", None)),
    ),
    dimensions=tuple(Dimension(name=name, sizes=(1, 2, 4)) for name in ("data", "tensor")),
    rules={"batch": ("data",), "mlp": ("tensor",)},
    results=("batch", "mlp"),
)
"""

NAMES = ["plan", "JAX's default", "row-major", "best", "worst"]


def one_axis(candidate: Candidate) -> Rejection | None:
    """Rejects what is split over data alone: there placements make no difference."""
    if candidate.layout.size("tensor") > 1:
        return None
    return Rejection(stage=Stage.COMPILE, reason=RejectReason.COMPILER_ERROR, detail="for the test")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with one finished search."""
    url = f"sqlite:///{tmp_path_factory.mktemp('compare') / 'plans.db'}"
    with storage.open_store(url, create=True) as store:
        Search(
            workload=FakeWorkload(weight_bytes=30 << 30),
            spec=WorkloadSpec(model="fake"),
            slice_=SLICE,
            toolchain=TOOLCHAIN,
            screener=FakeScreener(weight_bytes=30 << 30),
            compiler=FakeCompiler(weight_bytes=30 << 30, fail=one_axis),
            store=store,
            optuna_storage=optuna.storages.InMemoryStorage(),
            settings=Settings(budget_s=None, patience=None, slack=None),
        ).run()
    return url


def run(*arguments: str, db: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--db", db])


def compared(database: str, *arguments: str) -> dict[str, dict[str, object]]:
    done = run("compare", "1", "--placements", "-f", "json", *arguments, db=database)
    assert done.exit_code == 0, done.output
    return {entry["name"]: entry for entry in json.loads(done.output)["placements"]}


def test_placements_stand_side_by_side(database: str) -> None:
    done = run("compare", "1", "--placements", db=database)
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in NAMES)
    entries = compared(database)
    assert list(entries) == NAMES
    with storage.open_store(database) as store:
        plan = store.plan(1).plan
    assert entries["plan"]["step_s"] == pytest.approx(plan.step_s)
    assert entries["best"]["step_s"] == pytest.approx(plan.step_s)
    steps = [float(str(entry["step_s"])) for entry in entries.values()]
    assert min(steps) == pytest.approx(plan.step_s)
    assert float(str(entries["worst"]["step_s"])) > plan.step_s
    assert entries["JAX's default"]["speedup_over_default"] == pytest.approx(1.0)


def test_a_slow_link_makes_nothing_faster_and_is_avoided(database: str) -> None:
    whole = compared(database)
    busiest = str(whole["plan"]["busiest_link"]).replace("->", ":")
    slow = compared(database, "--link", f"{busiest}=0.25")
    for name in ("plan", "JAX's default", "row-major"):
        assert float(str(slow[name]["step_s"])) >= float(str(whole[name]["step_s"]))
    assert float(str(slow["plan"]["step_s"])) > float(str(whole["plan"]["step_s"]))
    assert float(str(slow["best"]["step_s"])) <= float(str(slow["plan"]["step_s"]))


@pytest.mark.parametrize(
    ("link", "hint"), [("0,0", "is not like 0,0:1,0=0.5"), ("0,0:1,0=2", "0 to 1 is legal"), ("0,0:0,1=x", "0,0:1,0")]
)
def test_a_link_that_is_none_is_a_usage_error(database: str, link: str, hint: str) -> None:
    done = run("compare", "1", "--placements", "--link", link, db=database)
    assert done.exit_code == 2
    assert hint in done.output


def test_a_link_between_chips_that_are_no_neighbours_is_refused(database: str) -> None:
    done = run("compare", "1", "--placements", "--link", "0,0:1,3=0.5", db=database)
    assert isinstance(done.exception, InvalidValue)
    assert "no link between" in str(done.exception)


@pytest.mark.parametrize(
    "arguments", [(), ("--placements", "--layout", "data=8"), ("--placements", "--placement", "best")]
)
def test_what_to_compare_must_be_said(database: str, arguments: tuple[str, ...]) -> None:
    done = run("compare", "1", *arguments, db=database)
    assert done.exit_code == 2
    assert "--placements" in done.output
    assert "--layout" in done.output


def beside(database: str, *arguments: str) -> dict[str, Any]:
    done = run("compare", "1", "-f", "json", *arguments, db=database)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.output)
    return document


def test_a_choice_of_the_study_is_set_beside_the_plan(database: str) -> None:
    with storage.open_store(database) as store:
        plan = store.plan(1).plan
        trials = [t for t in store.trials(1) if t.predicted_s is not None and t.candidate.layout.size("tensor") == 4]
    best = min(trials, key=lambda trial: trial.predicted_s or 1.0)
    found = beside(database, "--layout", "data=2,tensor=4")
    assert found["plan"]["step_s"] == pytest.approx(plan.step_s)
    assert found["own"]["name"] == f"trial {best.number}"
    assert found["own"]["step_s"] == pytest.approx(best.predicted_s)
    default = beside(database, "--layout", "data=2,tensor=4,weights=data", "--placement", "default")
    assert default["own"]["candidate"]["layout"]["options"]["weights"] == "data"
    assert default["own"]["step_s"] >= found["own"]["step_s"]
    assert default["speedup_of_the_plan"] == pytest.approx(default["own"]["step_s"] / plan.step_s)


def test_the_plans_own_layout_elsewhere(database: str) -> None:
    placements = compared(database)
    for where, name in (("default", "JAX's default"), ("row-major", "row-major"), ("best", "best"), ("plan", "plan")):
        assert beside(database, "--placement", where)["own"]["step_s"] == pytest.approx(placements[name]["step_s"])


def test_it_says_part_by_part_what_the_choice_loses(database: str) -> None:
    done = run("compare", "1", "--layout", "data=2,tensor=4", "--placement", "row-major", db=database)
    assert done.exit_code == 0, done.output
    for words in ("step ms", "exposed, over tensor", "loses", "busiest link ms", "memory GiB", "The plan is 1."):
        assert words in done.output


def test_a_choice_that_was_rejected_says_why(database: str) -> None:
    done = run("compare", "1", "--layout", "data=8,weights=replicated", db=database)
    assert done.exit_code == 0, done.output
    assert "does not run: hbm: " in done.output


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--layout", "data=4"), "4 is not the 8 devices"),
        (("--layout", "date=8"), "did you mean 'data'?"),
        (("--placement", "somewhere"), "legal: default, row-major, best, plan"),
    ],
)
def test_a_choice_that_is_none_says_what_would_be(database: str, arguments: tuple[str, ...], hint: str) -> None:
    done = run("compare", "1", *arguments, db=database)
    assert isinstance(done.exception, InvalidValue)
    assert hint in str(done.exception)


def test_what_nobody_compiled_is_not_compiled_by_another_compiler(database: str) -> None:
    done = run("compare", "1", "--layout", "data=2,tensor=4,xla_new=true", db=database)
    if installed_toolchain().digest == TOOLCHAIN.digest:
        assert isinstance(done.exception, UnknownName)
        assert "--workload" in str(done.exception)
    else:
        assert isinstance(done.exception, InvalidValue)
        assert "would compare two compilers" in str(done.exception)


@pytest.mark.compiler
def test_a_choice_that_nobody_compiled_is_compiled_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "choosable.py").write_text(CHOOSABLE)
    spec = WorkloadSpec(model="choosable:workload")
    tune(spec=spec, slice_name="v5e-2x2", db=url, settings=Settings(max_trials=2), jobs=1)
    flag = "xla_tpu_enable_async_all_to_all=true"  # no part of the space, so no search tried it
    named = ("--layout", f"data=1,tensor=4,{flag}", "--placement", "default")
    unnamed = run("compare", "1", *named, "-f", "json", db=url)
    assert isinstance(unnamed.exception, UnknownName)
    assert "--workload package.module:attribute" in str(unnamed.exception)
    first = beside(url, *named, "--workload", "choosable:workload")
    assert first["own"]["step_s"] > 0
    assert first["own"]["candidate"]["layout"]["axes"] == [["data", 1], ["tensor", 4]]
    with storage.open_store(url) as store:
        assert len(store.plans(active_only=False)) == 1
    compiled: list[Candidate] = []
    monkeypatch.setattr(CompilePool, "compile", lambda self, *arguments, **named: compiled.append(arguments[2]))
    assert beside(url, *named, "--workload", "choosable:workload") == first
    assert compiled == []


def test_a_program_that_is_not_there_is_said(database: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'exported.db'}"
    with storage.open_store(database) as source, storage.open_store(url, create=True) as target:
        target.promote(source.plan(1).plan)
    done = run("compare", "1", "--placements", db=url)
    assert isinstance(done.exception, PlanNotFound)
    assert "compiled program" in str(done.exception)
    assert "meshwright tune" in str(done.exception)


def test_explain_draws_the_links_and_names_whose_traffic_they_carry(database: str) -> None:
    done = run("explain", "1", db=database)
    assert done.exit_code == 0, done.output
    picture = done.output.split("Load of each link")[1]
    assert "100" in picture
    assert picture.count("o-") >= 4
    with storage.open_store(database) as store:
        links = store.plan(1).plan.details["busy_links"]
    assert links[0]["name"] in picture
    (axes, _) = links[0]["by_axes"][0]
    assert f"{axes} (" in picture


def test_explain_says_what_the_runner_up_loses_and_what_families_were_rejected_for(database: str) -> None:
    done = run("explain", "1", db=database)
    assert done.exit_code == 0, done.output
    assert "compute only" in done.output
    assert "The runner-up, trial" in done.output
    assert "What became of each family of layouts" in done.output
    document = json.loads(run("explain", "1", "-f", "json", db=database).output)
    assert document["plan"] == 1
    assert document["rivals"][0]["loss_s"] > 0
    assert {family["name"] for family in document["families"]} == {"data", "data+tensor"}
    assert document["limits"]["step_s"] == pytest.approx(document["step_s"])
