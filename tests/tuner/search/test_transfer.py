from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.fakes import FakeWorkload
from tests.tuner.search.test_funnel import TOOLCHAIN, Bench
from tuner.experience import Experience
from tuner.layouts.layout import Candidate, Layout
from tuner.ports import Screened
from tuner.program.program import Compute, ComputeKind, Program
from tuner.screening.bounds import Bound
from tuner.search.prospects import Prospect
from tuner.search.settings import Settings
from tuner.search.transfer import MOST_WINNERS, Transfer

SPACE = FakeWorkload().space
HERE = "v5e-2x4"
FAST = (("xla_fast", "true"),)


def layout(data: int, tensor: int, blocks: str = "512", weights: str = "replicated") -> Layout:
    return Layout.of({"data": data, "tensor": tensor}, {"blocks": blocks, "weights": weights})


def seen(
    study_id: int, of: Layout, predicted_s: float, estimate_s: float | None = 1.0, **changes: object
) -> Experience:
    values = {"slice_name": HERE, "shape": "", "candidate": Candidate(layout=of)} | changes
    return Experience(study_id=study_id, estimate_s=estimate_s, predicted_s=predicted_s, **values)  # type: ignore[arg-type]


def prospect(of: Layout, estimate_s: float = 1.0) -> Prospect:
    node = Compute(name="dot", kind=ComputeKind.MATMUL, flops=1.0)
    screened = Screened(program=Program(devices=of.devices, schedule=(node,)), least_bytes=1, digest="d")
    bound = Bound(compute_s=0.1, memory_s=0.1, network_s=0.1)
    return Prospect(candidate=Candidate(layout=of), screened=screened, bound=bound, estimate_s=estimate_s)


def test_without_experience_an_estimate_is_what_it_is() -> None:
    transfer = Transfer((), SPACE, HERE)
    assert transfer.slack is None
    assert transfer.expected_s(prospect(layout(2, 4), 3.0)) == 3.0
    assert transfer.winners([prospect(layout(2, 4))]) == []
    assert not transfer.tuned(Candidate(layout=layout(2, 4)))


def test_an_estimate_is_corrected_by_its_nearest_kin() -> None:
    transfer = Transfer(
        [
            seen(1, layout(2, 4), 1.2),
            seen(1, layout(4, 2), 1.4),
            seen(2, layout(4, 4, weights="data"), 2.0, slice_name="v5e-4x4"),
        ],
        SPACE,
        HERE,
    )
    assert transfer.expected_s(prospect(layout(2, 4, "1024"), 2.0)) == pytest.approx(2.4)  # blocks make no other kind
    assert transfer.expected_s(prospect(layout(2, 4, weights="data"), 2.0)) == pytest.approx(4.0)  # split alike
    assert transfer.expected_s(prospect(layout(8, 1), 2.0)) == pytest.approx(2.8)  # the median of everything


def test_trust_in_estimates_is_what_other_studies_confirm() -> None:
    steady = [seen(study, layout(2, 4), 1.1) for study in (1, 2, 3)]
    assert Transfer(steady, SPACE, HERE).slack == 0.02
    shaky = [seen(study, layout(2, 4), predicted) for study, predicted in ((1, 1.0), (2, 1.2), (3, 0.8))]
    assert Transfer(shaky, SPACE, HERE).slack > 0.3  # type: ignore[operator]


def test_winners_come_from_this_slice_first_and_are_translated_from_others() -> None:
    elsewhere = seen(9, layout(4, 4), 0.5, slice_name="v5e-4x4", candidate=Candidate(layout=layout(4, 4)))
    here = seen(3, layout(8, 1, "1024"), 0.9, candidate=Candidate(layout=layout(8, 1, "1024"), compiler_options=FAST))
    lost = seen(3, layout(2, 4), 1.0)
    prospects = [prospect(layout(8, 1)), prospect(layout(2, 4), 1.0), prospect(layout(4, 2), 2.0)]
    assert Transfer([elsewhere, here, lost], SPACE, HERE).winners(prospects) == [
        Candidate(layout=layout(8, 1), compiler_options=FAST),  # with the blocks that this shape has
        Candidate(layout=layout(2, 4)),  # splits what the winner on the other slice splits
    ]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([(8, 1), (4, 2), (2, 4)]), st.floats(0.1, 10)), max_size=12)
)
def test_winners_are_few_and_are_prospects(found: list[tuple[int, tuple[int, int], float]]) -> None:
    transfer = Transfer([seen(study, layout(*sizes), predicted) for study, sizes, predicted in found], SPACE, HERE)
    prospects = [prospect(layout(8, 1)), prospect(layout(4, 2))]
    winners = transfer.winners(prospects)
    assert len(winners) <= MOST_WINNERS
    assert {winner.layout for winner in winners} <= {p.candidate.layout for p in prospects}
    assert all(transfer.expected_s(p) > 0 for p in prospects)


def test_a_winner_is_tuned_if_its_study_tried_its_neighbours() -> None:
    won = seen(1, layout(2, 4), 0.9, candidate=Candidate(layout=layout(2, 4), compiler_options=FAST))
    assert not Transfer([won], SPACE, HERE).tuned(won.candidate)
    neighbour = seen(1, layout(2, 4), 1.0)
    assert Transfer([won, neighbour], SPACE, HERE).tuned(won.candidate)
    assert not Transfer([won, neighbour], SPACE, HERE).tuned(neighbour.candidate)
    assert not Transfer([won, neighbour], SPACE, "v5e-4x4").tuned(won.candidate)


def test_a_search_that_can_learn_compiles_less_and_finds_the_same() -> None:
    settings = Settings(budget_s=None)
    alone = Bench()
    first = alone.run(settings)
    cold = len(alone.compiler.asked)
    # A new compiler: every program is compiled anew, and what won under the old one is known.
    alone.compiler.asked.clear()
    second = alone.run(settings, toolchain=replace(TOOLCHAIN, libtpu="0.0.99"))
    assert first.trials[0].candidate == second.trials[0].candidate
    assert len(alone.compiler.asked) <= cold * 2 / 3


def test_a_proof_needs_no_less_after_experience() -> None:
    bench = Bench()
    settings = Settings(budget_s=None, patience=None, slack=None)
    first = bench.run(settings)
    second = bench.run(settings, toolchain=replace(TOOLCHAIN, libtpu="0.0.99"))
    assert second.proved
    looked_at = [{t.candidate.layout.axes for t in bench.store.trials(run.study.id)} for run in (first, second)]
    assert looked_at[0] == looked_at[1]
    assert second.trials[0].predicted_s == first.trials[0].predicted_s
