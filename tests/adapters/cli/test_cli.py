import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import storage
from tests.tuner.plans.samples import TOOLCHAIN, V5E_2X4, make_plan
from tuner.layouts.layout import Candidate, Layout
from tuner.plans.plan import Baseline, Plan
from tuner.plans.workload import WorkloadKey
from tuner.rejections import Rejection, RejectReason, Stage
from tuner.stores import StudyKey, Trial, TrialState

Run = Callable[..., subprocess.CompletedProcess[str]]

WAN = ("wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5e-2x4")


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A database with one study of two trials and its plan."""
    url = f"sqlite:///{tmp_path / 'plans.db'}"
    workload = WorkloadKey(model="wan2.1-t2v-1.3b", shape="832x480x81", identity=(("revision", "1"),))
    key = StudyKey(workload=workload, slice=V5E_2X4, toolchain=TOOLCHAIN)
    candidate = Candidate(layout=Layout.of({"cfg": 2, "ulysses": 4}))
    with storage.open_store(url, create=True) as store:
        study = store.open_study(key)
        store.save_trials(
            study.id,
            [
                Trial(number=0, candidate=candidate, state=TrialState.COMPLETE, stage=Stage.PLACE, predicted_s=0.5),
                Trial(
                    number=1,
                    candidate=Candidate(layout=Layout.of({"ring": 8})),
                    state=TrialState.REJECTED,
                    stage=Stage.COMPILE,
                    rejection=Rejection(stage=Stage.COMPILE, reason=RejectReason.HBM, detail="needs 20 GiB"),
                ),
            ],
        )
        store.count_refusals(study.id, {"indivisible": 7})
        baseline = Baseline(name="A", layout="cfg=2", step_s=0.6, best_placement_step_s=0.55)
        store.promote(make_plan(workload=workload, study=key.name, trial=0, details=DETAILS, baselines=(baseline,)))
    return url


DETAILS = {
    "step_s": 0.5,
    "matmul_s": 0.2,
    "memory_s": 0.02,
    "copy_s": 0.01,
    "attention_s": 0.25,
    "kernel_s": 0.0,
    "exposed_communication_s": 0.02,
    "communication_s": 0.03,
    "communication_bound_s": 0.015,
    "peak_compute_s": 0.3,
    "received_bytes": 2.3e9,
    "links": 20,
    "idle_links": 4,
    "busiest_link": "0,0->0,1",
    "busiest_link_s": 0.02,
    "collectives": [],
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line as a process of its own, away from the user's files."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHWRIGHT")}
        return subprocess.run(
            [sys.executable, "-c", "from adapters.cli.main import main; main()", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=inherited | own | environment,
        )

    return call


def test_lookup_prints_the_plan(run: Run, database: str) -> None:
    done = run("lookup", *WAN, "--db", database)
    assert done.returncode == 0, done.stderr
    assert "500.0 ms (predicted)" in done.stdout
    assert "the plan is 1.20x as fast" in done.stdout
    assert "each chip: cfg, ulysses" in done.stdout


def test_lookup_prints_the_whole_document(run: Run, database: str) -> None:
    done = run("lookup", *WAN, "--format", "json", MESHWRIGHT_DATABASE_URL=database)
    document = json.loads(done.stdout)
    plan = Plan.from_json(document["plan"])
    assert plan.step_s == 0.5
    # This environment's compiler is not the one that made the plan unless it is the very version of the sample.
    assert document["rung"] in ("exact", "stale-toolchain")


def test_lookup_takes_the_names_that_people_type(run: Run, database: str) -> None:
    done = run("lookup", "wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5litepod-8", "--db", database)
    assert done.returncode == 0, done.stderr


def test_no_plan_is_exit_code_3_with_the_reason(run: Run, database: str) -> None:
    done = run("lookup", "wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5e-4x4", "--db", database)
    assert done.returncode == 3
    assert "no plan of wan2.1-t2v-1.3b for v5e-4x4" in done.stderr


@pytest.mark.parametrize(
    "command", [("lookup", *WAN), ("plans", "list"), ("trials", *WAN), ("explain", "1"), ("db", "check")]
)
def test_a_missing_file_is_an_error_and_is_never_made(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "absent.db"
    done = run(*command, "--db", f"sqlite:///{path}")
    assert done.returncode == 1
    assert f"no such database: {path}" in done.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("tune", "wan2.1-t2v-1.3", "--shape", "832x480x81", "--slice", "v5e-2x4"), "wan2.1-t2v-1.3b"),
        (("tune", "wan2.1-t2v-1.3b", "--shape", "832x480x80", "--slice", "v5e-2x4"), "832x480x81"),
        (("tune", "wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5e-3x3"), "2x2, 2x4, 4x4"),
        (("tune", "wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5f-2x4"), "v5e"),
        (("tune", "examples.block:nothing", "--slice", "v5e-2x4"), "no attribute 'nothing'"),
        (("tune", "wan2.1-t2v-1.3b", "--shape", "832x480x81", "--slice", "v5e-2x4", "--budget", "soon"), "not a time"),
        (("tune", "examples.block:workload", "--slice", "v5e-2x4", "--link", "0,0:1,3=0.5"), "no link between"),
        (("lookup", "wan", "--slice", "v5e-2x4", "--link", "0,0:1,0"), "0,0:1,0=0.5"),
        (("lookup", "wan", "--slice", "v5e-2x4", "--reserve-hbm", "2 chips"), "not a size"),
    ],
)
def test_bad_input_is_exit_code_2_with_what_would_be_legal(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], hint: str
) -> None:
    done = run(*arguments, "--db", f"sqlite:///{tmp_path / 'new.db'}")
    assert done.returncode == 2, done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.db").exists()


def test_a_plan_is_for_whole_links_unless_they_are_named(run: Run, database: str) -> None:
    done = run("lookup", *WAN, "--link", "1,0:0,0=0.5", "--db", database)
    assert done.returncode == 3
    assert "links 0,0:1,0=0.5" in done.stderr


def test_trials(run: Run, database: str) -> None:
    done = run("trials", *WAN, "--db", database)
    assert "7 indivisible" in done.stdout
    assert "hbm: needs 20 GiB" in done.stdout
    rejected = json.loads(run("trials", *WAN, "--db", database, "--state", "rejected", "-f", "json").stdout)
    assert [trial["number"] for trial in rejected["trials"]] == [1]


def test_explain(run: Run, database: str) -> None:
    done = run("explain", "1", "--db", database)
    assert done.returncode == 0, done.stderr
    assert "attention" in done.stdout
    assert "50%" in done.stdout
    assert "placement of its own layout gives 1.09x" in done.stdout
    assert "1 hbm; the nearest, ring=8: needs 20 GiB" in done.stdout
    assert run("explain", *WAN, "--db", database).stdout == done.stdout


def test_plans_are_listed_exported_compared_retired_and_promoted(run: Run, database: str, tmp_path: Path) -> None:
    def plans(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("plans", *arguments, "--db", database)

    assert "wan2.1-t2v-1.3b@832x480x81" in plans("list").stdout
    assert plans("export", "1", "-o", str(tmp_path / "plan.json")).returncode == 0
    assert Plan.from_json(json.loads((tmp_path / "plan.json").read_text())).step_s == 0.5
    assert "is retired" in plans("retire", "1", "--note", "no longer wanted").stdout
    assert plans("list").stdout.strip() == "No plans."
    assert "version 2, is active" in plans("promote", "1").stdout
    assert plans("diff", "1", "2").stdout.strip() == "The plans are equal."
    assert plans("show", "9").returncode == 3


def test_the_database_is_made_checked_and_repeatable(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'made.db'}"
    for _ in range(2):
        assert run("db", "init", "--db", url).returncode == 0
    assert run("db", "upgrade", "--db", url).returncode == 0
    assert "In order" in run("db", "check", "--db", url).stdout


def test_settings_come_from_option_environment_file_and_default_in_this_order(
    run: Run, database: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f'db = "{database}"\n[trials]\nlimit = 1\n')
    named = {"MESHWRIGHT_SETTINGS": str(settings)}

    def rows(*arguments: str, **environment: str) -> int:
        done = run("trials", *WAN, "-f", "json", *arguments, **(named | environment))
        return len(json.loads(done.stdout)["trials"])

    assert rows() == 1
    assert rows(MESHWRIGHT_TRIALS_LIMIT="2") == 2
    assert rows("--limit", "1", MESHWRIGHT_TRIALS_LIMIT="2") == 1
    for wrong in ("1.5", "1e999", "[1]"):
        settings.write_text(f'db = "{database}"\n[trials]\nlimit = {wrong}\n')
        assert run("trials", *WAN, **named).returncode == 2
    settings.write_text("limit = ")
    done = run("trials", *WAN, **named)
    assert done.returncode == 2
    assert str(settings) in done.stderr


def test_help_is_there_for_every_command(run: Run) -> None:
    done = run("--help")
    assert all(
        name in done.stdout for name in ("tune", "lookup", "plans", "trials", "explain", "models", "slices", "db")
    )


def test_slices_and_models(run: Run) -> None:
    (named,) = json.loads(run("slices", "v5e-2x8", "-f", "json").stdout)
    assert named["devices"] == 16
    assert "does not sell" in named["note"]
    assert "wan2.1-t2v-14b" in json.loads(run("models", "-f", "json").stdout)


def test_lookup_loads_neither_jax_nor_optuna_nor_rich(database: str) -> None:
    code = (
        "import sys, adapters.cli.main as m\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'jax', 'jaxlib', 'optuna', 'rich', 'alembic'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "lookup", *WAN, "--db", database], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("optuna", ("tune", *WAN), "meshwright[tpu]"),
        ("jax", ("models",), "meshwright[tpu]"),
        ("psycopg", ("plans", "list", "--db", "postgresql://nobody@localhost/none"), "meshwright[postgres]"),
    ],
)
def test_what_is_not_installed_is_said(module: str, arguments: tuple[str, ...], extra: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None\nfrom adapters.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert extra in done.stderr
    assert "Traceback" not in done.stderr
