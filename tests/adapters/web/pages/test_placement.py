"""The page of a placement: its state in the URL, its JSON twin, its file, and what it does without a program."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from starlette.testclient import TestClient

import storage
from adapters.web.app import create_app
from tests.adapters.web.study import wan_study
from tests.tuner.plans.samples import TOOLCHAIN
from tuner.layouts.layout import Candidate, Layout
from tuner.placements.default import row_major
from tuner.placements.placement import Placement
from tuner.plans.workload import WorkloadKey
from tuner.ports import Compiled
from tuner.program.program import Collective, CollectiveKind, Program
from tuner.rejections import Stage
from tuner.slices.names import parse_slice
from tuner.stores import ContentKey, StudyKey, Trial, TrialState

HTML = {"accept": "text/html"}
PLAN, TRIAL = "/plans/1/placement", "/studies/1/trials/17/placement"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = wan_study(tmp_path_factory.mktemp("placement") / "wan.db")
    with TestClient(create_app(url), headers=HTML) as client:
        yield client


def test_a_plan_and_its_trial_show_the_same_placement(client: TestClient) -> None:
    plan, trial = (client.get(f"{path}.json").json() for path in (PLAN, TRIAL))
    assert plan["placements"] == trial["placements"]
    assert (plan["of"], trial["of"]) == ("plan 1", "trial 17 of study 1")
    assert client.get(PLAN).text.count("<svg") == client.get(TRIAL).text.count("<svg") == 2


def test_the_twin_says_what_the_pictures_show(client: TestClient) -> None:
    page = client.get(f"{PLAN}.json").json()
    ours, default = page["placements"]
    assert ours["step_s"] == pytest.approx(1.5125933706284047)
    assert default["step_s"] / ours["step_s"] == pytest.approx(1.10, abs=0.01)
    assert page["axis"] == "ulysses"
    assert page["collective"] == "all-gather:ulysses"
    assert len(ours["positions"]) == 16
    assert ours["ring"] == [[[0, 0], [1, 0], [1, 1], [0, 1]]]
    assert default["ring"] == [[[0, 0], [1, 0], [3, 0], [2, 0]]]  # folded over a line
    busiest = ours["links"][0]
    assert busiest["busy_s"] == max(link["busy_s"] for link in ours["links"])
    assert busiest["busy_s"] == pytest.approx(sum(seconds for _, seconds in busiest["by_axes"]))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("axis=cfg", ">cfg:</text>"),
        ("collective=collective-permute:ring", "collective-permute over ring, group 0 of"),
        ("group=3", "all-gather over ulysses, group 3 of 4"),
        ("group=99", "all-gather over ulysses, group 3 of 4"),
        ("group=every", "all-gather over ulysses, every group"),
        ("beside=row-major", ">row-major</text>"),
    ],
)
def test_the_address_says_what_is_drawn(client: TestClient, query: str, text: str) -> None:
    assert text in client.get(f"{PLAN}?{query}").text
    assert text in client.get(f"{PLAN}.svg?{query}").text


@pytest.mark.parametrize(
    "query", ["axis=none", "collective=none", "group=-1", "group=x", "beside=worst", "plane=0", "plane=x"]
)
def test_what_is_not_there_is_refused(client: TestClient, query: str) -> None:
    assert client.get(f"{PLAN}?{query}").status_code in (400, 404)


@pytest.mark.parametrize(
    "path", ["/plans/2/placement", "/studies/1/trials/99/placement", "/studies/1/trials/0/placement"]
)
def test_what_was_not_placed_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_file_stands_alone(client: TestClient) -> None:
    answer = client.get(f"{PLAN}.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["content-disposition"] == 'attachment; filename="placement-plan-1.svg"'
    assert ElementTree.fromstring(answer.content).find("{http://www.w3.org/2000/svg}style") is not None


def test_an_unchanged_page_is_not_sent_again(client: TestClient) -> None:
    tag = client.get(PLAN).headers["etag"]
    assert client.get(PLAN, headers={"if-none-match": tag}).status_code == 304


def stored(directory: Path, slice_name: str, placement: Placement | None = None, *, program: bool = True) -> TestClient:
    """A client of a service with one placed trial on a slice."""
    slice_ = parse_slice(slice_name)
    side = int(slice_.num_devices**0.5)
    layout = Layout.of({"data": slice_.num_devices // side, "tensor": side})
    groups = tuple(map(tuple, np.arange(slice_.num_devices).reshape(layout.shape).tolist()))
    gather = Collective(
        name="ag", kind=CollectiveKind.ALL_GATHER, operand_bytes=1 << 24, result_bytes=1 << 28, groups=groups
    )
    candidate = Candidate(layout=layout)
    workload = WorkloadKey(model="large", shape="")
    key = StudyKey(workload=workload, slice=slice_, toolchain=TOOLCHAIN)
    trial = Trial(
        number=0,
        candidate=candidate,
        state=TrialState.COMPLETE,
        stage=Stage.PLACE,
        predicted_s=0.01,
        placement=placement or row_major(slice_),
        lowered_digest="ab" * 32,
    )
    url = f"sqlite:///{directory / 'placed.db'}"
    with storage.open_store(url, create=True) as store:
        store.save_trials(store.open_study(key).id, [trial])
        if program:
            content = ContentKey(
                workload_digest=workload.digest,
                slice_name=slice_.name,
                wrap=slice_.wrap,
                toolchain_digest=TOOLCHAIN.digest,
                candidate_digest=candidate.digest,
            )
            compiled = Compiled(
                program=Program(devices=slice_.num_devices, schedule=(gather,)),
                lowered_digest=trial.lowered_digest,
                arguments=(),
                compile_s=1.0,
            )
            store.save_compiled(content, trial.lowered_digest, compiled)
    return TestClient(create_app(url), headers=HTML)


@pytest.mark.parametrize("slice_name", ["v6e-16x16", "v5p-16x16x16"])
def test_pages_of_large_slices_are_small_and_quick(tmp_path: Path, slice_name: str) -> None:
    with stored(tmp_path, slice_name) as client:
        path = "/studies/1/trials/0/placement"
        first = client.get(path)
        assert first.status_code == 200
        begun = time.perf_counter()
        again = client.get(f"{path}?group=1")
        took_s = time.perf_counter() - begun
        assert len(again.content) < 200_000
        assert took_s < 3.0  # 0.2 s on an idle machine
        assert len(client.get(f"{path}.json").content) < 1_000_000
        if slice_name.startswith("v5p"):
            assert "z=5 (one of 16 planes)" in client.get(f"{path}?plane=5").text


def test_two_pictures_without_symmetry_do_not_outgrow_a_page(tmp_path: Path) -> None:
    placement = Placement(devices=tuple(np.random.default_rng(0).permutation(256).tolist()))
    with stored(tmp_path, "v6e-16x16", placement) as client:
        assert len(client.get("/studies/1/trials/0/placement").content) < 200_000


def test_without_its_program_a_placement_is_drawn_from_what_the_trial_holds(tmp_path: Path) -> None:
    with stored(tmp_path, "v5e-4x4", program=False) as client:
        page = client.get("/studies/1/trials/0/placement")
        assert page.status_code == 200
        assert page.text.count("<svg") == 1
        assert "The compiled program is not in this database" in page.text
        twin = json.loads(client.get("/studies/1/trials/0/placement.json").text)
        assert (twin["collectives"], twin["beside"]) == ([], "none")


def test_a_placement_that_does_not_run_says_why(tmp_path: Path) -> None:
    shuffled = Placement(devices=tuple(np.random.default_rng(0).permutation(64).tolist()))
    with stored(tmp_path, "v5e-8x8", shuffled) as client:
        page = client.get("/studies/1/trials/0/placement")
        assert "It does not run: <bdi>all-gather over tensor" in page.text
        assert "does not run here" in page.text
