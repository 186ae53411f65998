from dataclasses import replace

import pytest

from tests.tuner.plans.samples import TOOLCHAIN, V5E_2X4, make_plan, stored
from tuner.errors import InvalidValue
from tuner.plans.lookup import Query, Rung, find
from tuner.plans.plan import Constraints, Evidence, Plan
from tuner.plans.toolchain import Toolchain, installed_toolchain
from tuner.plans.workload import WorkloadKey
from tuner.slices.slice import Slice

QUERY = Query(model="wan", shape="832x480x81", slice_name="v5e-2x4", toolchain=TOOLCHAIN)


def among(*plans: Plan):  # type: ignore[no-untyped-def]
    entries = [stored(plan, id_=i) for i, plan in enumerate(plans)]
    return lambda model, slice_name: [
        e for e in entries if (e.plan.workload.model, e.plan.slice.name) == (model, slice_name)
    ]


def test_exact() -> None:
    answer = find(QUERY, among(make_plan()))
    assert (answer.rung, answer.stale, answer.reasons) == (Rung.EXACT, False, ())


def test_without_a_toolchain_the_answer_says_so() -> None:
    answer = find(replace(QUERY, toolchain=None), among(make_plan()))
    assert answer.rung is Rung.UNCHECKED
    assert "toolchain was not checked" in answer.reasons[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"jax": "0.13"}, "jax 0.12.0.1 is now 0.13"),
        ({"jaxlib": "0.13"}, "jaxlib 0.12.0.1 is now 0.13"),
        ({"libtpu": "0.0.51"}, "libtpu 0.0.50.1 is now 0.0.51"),
        ({"flags": (("XLA_FLAGS", "--a"),)}, "XLA_FLAGS absent is now --a"),
        ({"flags": (("LIBTPU_INIT_ARGS", "--b"),)}, "LIBTPU_INIT_ARGS absent is now --b"),
    ],
)
def test_every_part_of_the_toolchain_makes_a_plan_stale(change: dict[str, str], reason: str) -> None:
    answer = find(replace(QUERY, toolchain=replace(TOOLCHAIN, **change)), among(make_plan()))
    assert (answer.rung, answer.stale, answer.reasons) == (Rung.STALE_TOOLCHAIN, True, (reason,))


def test_the_plan_of_this_toolchain_comes_before_a_newer_one_of_another() -> None:
    other = make_plan(toolchain=replace(TOOLCHAIN, jax="0.13"))
    answer = find(QUERY, among(other, make_plan()))
    assert answer.rung is Rung.EXACT
    assert answer.plan is not None
    assert answer.plan.id == 1


def test_a_near_shape_is_the_nearest_and_stale() -> None:
    shapes = ["1280x720x81", "832x480x41", "square"]
    plans = [make_plan(workload=WorkloadKey(model="wan", shape=shape)) for shape in shapes]
    answer = find(QUERY, among(*plans))
    assert answer.rung is Rung.NEAR_SHAPE
    assert answer.plan is not None
    assert answer.plan.plan.workload.shape == "832x480x41"
    assert "made for 832x480x41" in answer.reasons[0]


def test_another_slice_of_as_many_chips_never_answers() -> None:
    plan = make_plan(slice=Slice(generation_name="v5e", shape=(2, 8), wrap=(False, False)))
    answer = find(replace(QUERY, slice_name="v5e-4x4"), among(plan, make_plan(slice=V5E_2X4)))
    assert answer.rung is Rung.NONE
    assert answer.plan is None
    assert "v5e-4x4" in answer.reasons[0]


def test_variants_and_revisions_are_apart() -> None:
    assert find(replace(QUERY, variant="no-guidance"), among(make_plan())).rung is Rung.NONE
    answer = find(replace(QUERY, revision="2"), among(make_plan()))
    assert answer.rung is Rung.NONE
    assert "no plan for revision '2'; there are plans for '1'" in answer.reasons[0]


def test_a_plan_answers_for_smaller_reserves_only() -> None:
    plan = make_plan(constraints=Constraints(reserve_hbm_bytes=2 << 30))
    assert find(replace(QUERY, constraints=Constraints(reserve_hbm_bytes=1 << 30)), among(plan)).rung is Rung.EXACT
    answer = find(replace(QUERY, constraints=Constraints(reserve_hbm_bytes=3 << 30)), among(plan))
    assert answer.rung is Rung.NONE
    assert str(3 << 30) in answer.reasons[0]


def test_the_installed_toolchain_reads_flags_in_any_order() -> None:
    one = installed_toolchain({"XLA_FLAGS": "--a --b"})
    other = installed_toolchain({"XLA_FLAGS": "--b   --a", "LIBTPU_INIT_ARGS": ""})
    assert one == other
    assert one.digest != installed_toolchain({}).digest
    assert Toolchain.from_json(one.to_json()) == one


def test_a_plan_for_a_slow_link_serves_those_who_name_it_only() -> None:
    slow = Constraints(links=("1,0:1,1=0", "0,0:1,0=0.5"))
    plan = make_plan(constraints=slow)
    same = Constraints(links=("0,0:1,0=0.5", "1,0:1,1=0"))
    assert same.digest == slow.digest != Constraints().digest
    assert find(replace(QUERY, constraints=same), among(plan)).rung is Rung.EXACT
    answer = find(QUERY, among(plan))
    assert answer.rung is Rung.NONE
    assert "all links at their full rate" in answer.reasons[0]
    assert find(replace(QUERY, constraints=slow), among(make_plan())).plan is None
    assert Plan.from_json(plan.to_json()).constraints == slow


@pytest.mark.parametrize("flags", [(), (("LIBTPU_INIT_ARGS", "--b"), ("XLA_FLAGS", "--a=1;2 --c=100%"))])
def test_a_toolchain_is_spelled_in_one_line(flags: tuple[tuple[str, str], ...]) -> None:
    toolchain = replace(TOOLCHAIN, flags=flags)
    assert Toolchain.parse(toolchain.spelled) == toolchain


@pytest.mark.parametrize(
    "text", ["", "jax=1", "jax=1,jaxlib=2,libtpu=", "jax=1,jaxlib=2,libtpu=3;PATH=/bin", "jax 1;;"]
)
def test_other_text_is_no_toolchain(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not like jax="):
        Toolchain.parse(text)


OLD, OTHER = replace(TOOLCHAIN, jax="0.11"), replace(TOOLCHAIN, jax="0.13")


def test_a_plan_predicted_for_the_asked_toolchain_goes_before_one_measured_under_another() -> None:
    measured = make_plan(toolchain=OLD, evidence=Evidence.MEASURED)
    answer = find(QUERY, among(make_plan(), measured))
    assert (answer.rung, answer.plan and answer.plan.id) == (Rung.EXACT, 0)
    assert "plan 1 was measured, under another toolchain" in answer.reasons[0]


@pytest.mark.parametrize(("toolchain", "rung"), [(None, Rung.UNCHECKED), (OTHER, Rung.STALE_TOOLCHAIN)])
def test_measured_goes_before_predicted_on_one_rung(toolchain: Toolchain | None, rung: Rung) -> None:
    measured = make_plan(toolchain=OLD, evidence=Evidence.MEASURED)
    answer = find(replace(QUERY, toolchain=toolchain), among(measured, make_plan()))
    assert (answer.rung, answer.plan and answer.plan.id) == (rung, 0)
    assert "plan 0 was measured and goes before plan 1, which is newer and only predicted" in answer.reasons
