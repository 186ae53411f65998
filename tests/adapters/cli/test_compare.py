"""`compare` and `explain` on a plan whose compiled program is in the database."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from click.testing import CliRunner, Result

import storage
from adapters.cli.main import cli
from tests.tuner.search.fakes import FakeCompiler, FakeScreener, FakeWorkload
from tests.tuner.search.test_funnel import SLICE, TOOLCHAIN
from tuner.errors import InvalidValue, PlanNotFound
from tuner.layouts.layout import Candidate
from tuner.ports import WorkloadSpec
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.search.funnel import Search
from tuner.search.settings import Settings

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


def test_what_to_compare_must_be_said(database: str) -> None:
    done = run("compare", "1", db=database)
    assert done.exit_code == 2
    assert "--placements" in done.output


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
