"""Attention seconds: above the roofline, monotone, whole blocks counted, and equal to what the compiler emits today."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from importlib import metadata, resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.calibration.attention import attention_seconds, best_blocks, fits_vmem, legal_blocks
from tuner.calibration.attention_table import Variant
from tuner.errors import InvalidValue, UnknownName
from tuner.program.program import AttentionKernel
from tuner.slices.generations import GENERATIONS

DOCUMENT = json.loads(resources.files("tuner.calibration").joinpath("attention_cycles.json").read_text())
TABLED = sorted({(table["generation"], table["head_dim"]) for table in DOCUMENT["tables"]})
LENGTHS = st.integers(1, 100_000)
BLOCKS = st.builds(
    lambda query, compute, times: (128 * query, 128 * compute * times, 128 * compute),
    st.integers(1, 80),
    st.integers(1, 16),
    st.integers(1, 4),
)


def call(
    q_len: int,
    kv_len: int,
    blocks: tuple[int, int, int],
    *,
    heads: int = 4,
    head_dim: int = 128,
    name: str = "splash_mha_fwd_no_residuals",
    masked: bool = False,
) -> AttentionKernel:
    return AttentionKernel(
        name=name, heads=heads, q_len=q_len, kv_len=kv_len, head_dim=head_dim, blocks=blocks, masked=masked
    )


def test_the_generations_that_the_search_needs_are_tabled() -> None:
    assert {(generation, 128) for generation in ("v5e", "v5p", "v6e", "v7x")} <= set(TABLED)


@given(tabled=st.sampled_from(TABLED), q_len=LENGTHS, kv_len=LENGTHS, blocks=BLOCKS, heads=st.integers(1, 41))
def test_never_faster_than_the_peak(
    tabled: tuple[str, int], q_len: int, kv_len: int, blocks: tuple[int, int, int], heads: int
) -> None:
    generation, head_dim = tabled
    kernel = call(q_len, kv_len, blocks, heads=heads, head_dim=head_dim)
    padded = math.ceil(q_len / blocks[0]) * blocks[0] * math.ceil(kv_len / blocks[1]) * blocks[1]
    assert attention_seconds(kernel, generation) >= 4 * heads * padded * head_dim / GENERATIONS[generation].peak_flops


@given(tabled=st.sampled_from(TABLED), q_len=LENGTHS, kv_len=LENGTHS, more=st.integers(0, 9000), data=st.data())
def test_longer_never_takes_less(
    tabled: tuple[str, int], q_len: int, kv_len: int, more: int, data: st.DataObject
) -> None:
    generation, head_dim = tabled
    blocks = data.draw(st.sampled_from(legal_blocks(generation, head_dim)))

    def seconds(q: int, kv: int, heads: int = 4) -> float:
        return attention_seconds(call(q, kv, blocks, heads=heads, head_dim=head_dim), generation)

    assert seconds(q_len, kv_len) <= seconds(q_len + more, kv_len)
    assert seconds(q_len, kv_len) <= seconds(q_len, kv_len + more)
    assert seconds(q_len, kv_len) <= seconds(q_len, kv_len, heads=4 + more % 7)


def test_whole_blocks_are_counted() -> None:
    blocks = (512, 1024, 512)
    exact = attention_seconds(call(8192, 8192, blocks), "v5e")
    assert attention_seconds(call(8191, 8192 - 1000, blocks), "v5e") == exact
    assert attention_seconds(call(8193, 8192, blocks), "v5e") == pytest.approx(exact * 17 / 16, rel=0.01)
    assert attention_seconds(call(8192, 257, blocks), "v5e") == attention_seconds(call(8192, 1024, blocks), "v5e")


def test_between_the_roofline_and_every_region_in_every_step() -> None:
    # 4 heads of 8192 x 8192 on v5e: 698 us at peak; 993 us if start and finish ran in every step.
    assert 698e-6 < attention_seconds(call(8192, 8192, (512, 1024, 512)), "v5e") < 993e-6


def test_a_published_kernel_time() -> None:
    # Measured on v6e for 5 heads of 75600 queries and 75776 keys: 43.93 ms (github.com/yangwhale/gpu-tpu-pedia,
    # wan_tpu_optimization_guide.md 4.1.2). It does not say whether the 176 padded keys were masked; either is near.
    kernel = call(75600, 75776, (3024, 2048, 1024), heads=5)
    assert attention_seconds(kernel, "v6e") == pytest.approx(43.93e-3, rel=0.1)
    assert attention_seconds(replace(kernel, masked=True), "v6e") == pytest.approx(43.93e-3, rel=0.1)


def test_small_blocks_wait_for_memory() -> None:
    # 128 queries for each 2 MiB of keys and values: 128 operations to a byte, below the machine's balance.
    kernel = call(65536, 65536, (128, 4096, 1024))
    fetched = 4 * (65536 / 128) * 65536 * 2 * 128 * 2
    assert attention_seconds(kernel, "v6e") >= fetched / GENERATIONS["v6e"].hbm_bytes_per_s


def test_blocks_that_are_not_tabled_lie_between_their_neighbours() -> None:
    def seconds(query: int) -> float:
        return attention_seconds(call(query * 1024, 65536, (query, 2048, 1024)), "v6e") / query

    low, high = sorted((seconds(1024), seconds(1536)))
    assert low <= seconds(1280) <= high
    assert seconds(1279) == pytest.approx(seconds(1280), rel=0.01)


def test_far_blocks_cost_as_their_nearest_for_each_operation() -> None:
    blocks = (9472, 1024, 1024)
    longest = max(legal for legal in legal_blocks("v6e") if legal[1:] == blocks[1:])
    far = attention_seconds(call(9472 * 8, 65536, blocks), "v6e")
    near = attention_seconds(call(9472 * 8, 65536, longest), "v6e")
    assert far == pytest.approx(near, rel=0.1)


def test_masking_and_residuals_cost() -> None:
    blocks = (1024, 1024, 512)
    plain = attention_seconds(call(32768, 32768, blocks), "v6e")
    masked = attention_seconds(call(32768, 32768, blocks, masked=True), "v6e")
    segmented = attention_seconds(call(32768, 32768, blocks, name="splash_mha_fwd_segmented_no_residuals.3"), "v6e")
    residuals = attention_seconds(call(32768, 32768, blocks, name="splash_mha_fwd_residuals"), "v6e")
    assert 1.01 * plain < masked < segmented < 1.4 * plain
    assert plain < residuals < 1.05 * plain


def test_blocks_that_are_not_known_yet_are_the_fastest() -> None:
    unknown = attention_seconds(call(8192, 8192, (0, 0, 0), heads=1), "v5e")
    assert unknown == pytest.approx(best_blocks(8192, 8192, "v5e")[0].seconds)
    assert unknown < attention_seconds(call(8192, 8192, (512, 512, 512), heads=1), "v5e")


def test_two_fused_cores_share_heads() -> None:
    times = {heads: attention_seconds(call(8192, 8192, (512, 1024, 512), heads=heads), "v5p") for heads in (3, 4, 5)}
    assert times[3] == pytest.approx(times[4])
    assert times[5] == pytest.approx(times[4] * 1.5, rel=0.02)


@pytest.mark.parametrize(("generation", "head_dim"), TABLED)
def test_legal_blocks_fit_and_are_legal_for_the_kernel(generation: str, head_dim: int) -> None:
    legal = legal_blocks(generation, head_dim)
    assert (512, 1024, 512) in legal
    for query, key, compute in legal:
        assert fits_vmem((query, key, compute), generation, head_dim)
        assert query % 128 == key % compute == compute % 128 == 0


def test_what_the_compiler_refused_does_not_fit() -> None:
    # Blocks that a public recipe gives for v6e need more than the 16 MiB of v5e.
    assert not fits_vmem((3024, 2048, 1024), "v5e")
    assert fits_vmem((2048, 2048, 1024), "v6e")
    assert not fits_vmem((2048, 2048, 1024), "v5e")
    assert not fits_vmem((16384, 4096, 2048), "v6e")
    for table in DOCUMENT["tables"]:
        for *blocks, needed in table["too_large"]:
            assert needed > table["limit_bytes"] == GENERATIONS[table["generation"]].scoped_vmem_bytes
            assert not fits_vmem(tuple(blocks), table["generation"], table["head_dim"])
            assert tuple(blocks) not in legal_blocks(table["generation"], table["head_dim"])


def test_best_blocks_weigh_padding() -> None:
    choices = best_blocks(4096, 4096, "v5e")
    assert [choice.seconds for choice in choices] == sorted(choice.seconds for choice in choices)
    best = choices[0]
    assert (best.padded_q_len, best.padded_kv_len) == (4096, 4096)
    # 512 text tokens: no block of keys longer than they are.
    assert best_blocks(8192, 512, "v5e")[0].blocks[1] <= 512
    # 2048 + 128 queries: blocks of 2048 would do almost twice the work.
    assert best_blocks(2176, 8192, "v5e")[0].padded_q_len < 3072


def test_masking_is_charged_where_keys_are_padded() -> None:
    free = {choice.blocks: choice for choice in best_blocks(8192, 8192, "v6e")}
    forced = {choice.blocks: choice for choice in best_blocks(8192, 8192, "v6e", masked=True)}
    assert free[(1024, 2048, 1024)].seconds < forced[(1024, 2048, 1024)].seconds
    assert free[(1024, 1536, 768)].seconds == forced[(1024, 1536, 768)].seconds


@pytest.mark.parametrize("blocks", [(512, 1000, 512), (512, 1024, 384), (0, 512, 512), (512, 192, 64)])
def test_illegal_blocks_are_refused(blocks: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidValue, match="multiple"):
        attention_seconds(call(8192, 8192, blocks), "v5e")
    with pytest.raises(InvalidValue, match=str(blocks[1])):
        fits_vmem(blocks, "v5e")


def test_unknown_generation_and_head_size() -> None:
    with pytest.raises(UnknownName, match="v5e"):
        legal_blocks("v3")
    with pytest.raises(UnknownName, match="head size 4096"):
        attention_seconds(call(8192, 8192, (512, 512, 512), head_dim=4096), "v5e")


def test_a_smaller_head_costs_as_a_padded_one() -> None:
    assert attention_seconds(call(8192, 8192, (512, 1024, 512), head_dim=96), "v5e") == pytest.approx(
        attention_seconds(call(8192, 8192, (512, 1024, 512)), "v5e"), rel=0.01
    )


def test_nothing_is_read_before_it_is_asked_for() -> None:
    code = "import tuner.calibration.attention, sys; from tuner.calibration.attention_table import _tables as tables; "
    code += "assert tables.cache_info().misses == 0 and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_are_sound() -> None:
    for table in DOCUMENT["tables"]:
        facts = GENERATIONS[table["generation"]]
        cores = 2 if facts.chip_config == "megacore" else 1
        for query, key, compute, step, start, finish, vmem in table["rows"]:
            floor = 4 * query * key * table["head_dim"] * facts.clock_hz * cores / facts.peak_flops
            assert step >= 0.99 * floor, (table["generation"], query, key, compute)
            assert 0 < start < step
            assert 0 < finish < step
            assert 0 < vmem <= table["limit_bytes"]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("generation", "blocks", "variant"),
    [
        ("v5e", (512, 1024, 512), Variant.PLAIN),
        ("v6e", (1024, 2048, 1024), Variant.PLAIN),
        ("v6e", (512, 1024, 512), Variant.SEGMENTED),
        ("v5p", (1024, 1024, 512), Variant.PLAIN),
        ("v7x", (1024, 2048, 1024), Variant.PLAIN),
    ],
)
def test_the_compiler_still_says_so(generation: str, blocks: tuple[int, int, int], variant: Variant) -> None:
    from adapters.jax.bundles import derive

    here = " ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "libtpu"))
    derived = derive(generation, 128, blocks, variant)
    assert derived.cycles is not None
    tables = [
        table
        for table in DOCUMENT["tables"]
        if (table["generation"], table["head_dim"], table["variant"]) == (generation, 128, variant)
    ]
    rows = {table["toolchain"]: row for table in tables for row in table["rows"] if tuple(row[:3]) == blocks}
    if here in rows:
        cycles = derived.cycles
        assert rows[here][3:] == [cycles.step, cycles.start, cycles.finish, derived.vmem_bytes]
    newest = rows[tables[0]["toolchain"]]
    assert derived.cycles.step == pytest.approx(newest[3], rel=0.06)


@pytest.mark.compiler
def test_the_compiler_refuses_what_does_not_fit() -> None:
    from adapters.jax.bundles import derive

    derived = derive("v5e", 128, (2048, 2048, 1024), Variant.PLAIN)
    assert derived.cycles is None
    assert derived.vmem_bytes > derived.limit_bytes == 16 << 20
