"""Seconds of the splash attention kernel, for which the compiler gives no estimate.

The model: a call runs heads x query blocks x key/value blocks grid steps one after another. A step takes the larger
of its tabled cycles over the clock and of its key and value bytes over the HBM bandwidth, because the pipeline
fetches the next blocks meanwhile; a query block adds its start and its finish. A chip with two fused cores splits the
heads between them. Every block counts whole, so lengths are padded up to blocks, and masking costs every step. The
result is never below the floating-point operations over the peak. What the scalar unit waits for, and the pipeline
other than for bandwidth, is not in it.

The tabled kernel gets no tables of non-empty mask blocks; one that gets them (``make_splash_mha`` with a mask) takes
about 100 cycles more in a step on v5e and 90 on v6e. Against tabled rows that were left out, interpolation between
query blocks is off by 0.5 to 1.6 % in the median of a table (8 % at most on v5e and v6e, 17 % on v5p and v7x, whose
tables begin at 128 queries), and the nearest other key blocks by 4 to 6 %, in nine of ten by less than 16 % (28 % on
v5p and v7x). Steps that libtpu 0.0.42.1 with jax 0.10.2 compiles are within 1.5 % of the table at ten of the longest
blocks and 4 % more at (512, 1024, 512); its finish of a query block takes about twice as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from tuner.calibration.attention_table import Blocks, Row, Variant, check_blocks, fits, legal, table
from tuner.calibration.calibration import Calibration
from tuner.calibration.calibration import calibration as shipped
from tuner.program.program import AttentionKernel
from tuner.slices.generations import Generation
from tuner.slices.generations import generation as generation_named


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """Blocks, and the seconds that one head takes with them, padding included."""

    blocks: Blocks
    seconds: float
    padded_q_len: int
    padded_kv_len: int


def attention_seconds(
    kernel: AttentionKernel, generation: str | Generation, calibration: Calibration | None = None
) -> float:
    """Seconds of one call on one device. Raises UnknownName if there is no table, InvalidValue for illegal blocks.

    `calibration` is the shipped one of the generation by default.

    The kernel's name says whether it compares segment ids or writes residuals, as splash attention names itself
    (``splash_mha_fwd_segmented_no_residuals``). Lengths that are not multiples of the blocks are padded up. Blocks of 0
    are not known yet (a screen finds attention, not a kernel); the fastest that fit are taken.
    """
    facts = generation if isinstance(generation, Generation) else generation_named(generation)
    variants = _variants(kernel)
    constants = calibration or shipped(facts.name)
    if any(kernel.blocks):
        return _seconds(kernel, facts, variants, constants)
    blocks = _fastest(kernel.q_len, kernel.kv_len, facts.name, kernel.head_dim)
    return _seconds(replace(kernel, blocks=blocks), facts, variants, constants)


def legal_blocks(generation: str, head_dim: int = 128) -> tuple[Blocks, ...]:
    """Blocks that are known to fit the default scoped VMEM of a generation, masked and with residuals too.

    Raises UnknownName if the generation has no table.
    """
    return legal(generation, head_dim)


def fits_vmem(blocks: Blocks, generation: str, head_dim: int = 128) -> bool:
    """True if the kernel compiles with these blocks under the default limit, in every variant, as far as is known.

    Raises UnknownName if the generation has no table, InvalidValue if the kernel takes no such blocks.
    """
    check_blocks(blocks)
    return fits(blocks, generation, head_dim)


def best_blocks(
    q_len: int, kv_len: int, generation: str, *, head_dim: int = 128, masked: bool | None = None
) -> tuple[BlockChoice, ...]:
    """Legal blocks for local lengths, the fastest first.

    `masked` says whether the kernel hides padded keys by a function of their indices; by default it does where the key
    blocks do not divide `kv_len`.
    """
    facts = generation_named(generation)
    heads = _cores(facts)
    choices = []
    for blocks in legal_blocks(generation, head_dim):
        padded_q, padded_kv = (_padded(length, block) for length, block in ((q_len, blocks[0]), (kv_len, blocks[1])))
        hidden = padded_kv != kv_len if masked is None else masked
        kernel = AttentionKernel(
            name="", heads=heads, q_len=padded_q, kv_len=padded_kv, head_dim=head_dim, blocks=blocks
        )
        choices.append(
            BlockChoice(
                blocks=blocks,
                seconds=_seconds(kernel, facts, (Variant.MASKED,) if hidden else (), shipped(generation)) / heads,
                padded_q_len=padded_q,
                padded_kv_len=padded_kv,
            )
        )
    return tuple(sorted(choices, key=lambda choice: (choice.seconds, choice.blocks)))


@lru_cache(maxsize=1024)
def _fastest(q_len: int, kv_len: int, generation: str, head_dim: int) -> Blocks:
    return best_blocks(q_len, kv_len, generation, head_dim=head_dim)[0].blocks


def _seconds(
    kernel: AttentionKernel, facts: Generation, variants: tuple[Variant, ...], constants: Calibration
) -> float:
    check_blocks(kernel.blocks)
    query, key, _ = kernel.blocks
    q_len, kv_len = _padded(kernel.q_len, query), _padded(kernel.kv_len, key)
    q_blocks, kv_blocks = q_len // query, kv_len // key
    row = _row(facts.name, kernel.head_dim, kernel.blocks, variants)
    cores = _cores(facts)
    bandwidth = facts.hbm_bytes_per_s * constants.hbm_efficiency / cores
    cycle_s = 1 / (facts.clock_hz * constants.attention_efficiency)
    token_s = kernel.head_dim * 2 / bandwidth  # one token of one head, bf16
    # Keys and values that are one block stay in VMEM while the query blocks pass.
    fetch_s = 2 * key * token_s if kv_blocks > 1 else 0.0
    step_s = max(row.step * cycle_s, fetch_s)
    block_s = kv_blocks * step_s + (row.start + row.finish) * cycle_s
    # Queries in and output out hide behind the steps of a query block, unless these are few.
    block_s = max(block_s, kv_blocks * fetch_s + 2 * query * token_s)
    fill_s = (query + 2 * key) * token_s
    heads = math.ceil(kernel.heads / cores)
    floor_s = 4.0 * kernel.heads * q_len * kv_len * kernel.head_dim / facts.peak_flops
    return max(heads * q_blocks * block_s + fill_s, floor_s)


def _row(generation: str, head_dim: int, blocks: Blocks, variants: tuple[Variant, ...]) -> Row:
    """The plain row, times what each variant costs against the plain kernel at the variant's nearest row.

    At some blocks the compiler happens to schedule a variant better than the plain kernel; this is not carried over.
    """
    plain = table(generation, head_dim, Variant.PLAIN)
    row = plain.row(blocks)
    for variant in variants:
        other = table(generation, head_dim, variant).nearest(blocks)
        base = plain.row(other.blocks)
        row = replace(
            row,
            step=row.step * max(1.0, other.step / base.step),
            start=row.start * max(1.0, other.start / base.start),
            finish=row.finish * max(1.0, other.finish / base.finish),
        )
    return row


def _variants(kernel: AttentionKernel) -> tuple[Variant, ...]:
    residuals = "residuals" in kernel.name and "no_residuals" not in kernel.name
    hidden = (Variant.SEGMENTED,) if "segmented" in kernel.name else (Variant.MASKED,) * kernel.masked
    return hidden + (Variant.RESIDUALS,) * residuals


def _cores(facts: Generation) -> int:
    """Cores that share the heads of one call: two where the chip's cores are fused into one device."""
    return 2 if facts.chip_config == "megacore" else 1


def _padded(length: int, block: int) -> int:
    return math.ceil(length / block) * block
