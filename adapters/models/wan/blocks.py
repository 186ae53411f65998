"""Attention blocks to try for a layout on a generation, the fastest by the table of kernel cycles first."""

from __future__ import annotations

from adapters.models.wan.axes import CFG, CONTEXT, DATA, RING, TENSOR, ULYSSES, Axes
from adapters.models.wan.config import WanConfig
from adapters.models.wan.tokens import LANES, Blocks, Tokens
from tuner.calibration.attention import attention_seconds, fits_vmem
from tuner.calibration.attention_table import Variant, table
from tuner.errors import UnknownName
from tuner.program.program import AttentionKernel
from tuner.slices.generations import Generation

BLOCKS = (
    "512,512,512",
    "512,1024,512",
    "512,1024,1024",
    "512,2048,512",
    "512,2048,1024",
    "1024,1024,256",
    "1024,2048,1024",
    "1536,1024,256",
    "2048,512,256",
    "2048,1024,512",
    "2048,2048,1024",
    "2048,3072,1024",
    "3072,2048,1024",
)
"""Every choice there is, as query,keys,compute; the first is MaxDiffusion's default."""

_TABLED = "v5e"
"""Stands in for generations without a table: no scoped memory is smaller than that of v5e (16 MiB by default)."""


def ranked_blocks(
    config: WanConfig, real: int, axes: Axes, generation: Generation, *, videos: int, halves: int
) -> tuple[str, ...]:
    """Returns the blocks that fit the scoped memory, the fastest step first: attention, and linear layers on the
    padding.

    Blocks that come out as the same after they are made to fit the tokens of a shard are returned once.
    """
    seconds: dict[str, float] = {}
    seen: set[tuple[Blocks, int]] = set()
    for text in BLOCKS:
        blocks = Blocks.parse(text)
        tokens = Tokens.split(real, axes, blocks)
        if (tokens.blocks, tokens.padded) in seen or not _fit(tokens.blocks, config.head_dim, generation):
            continue
        seen.add((tokens.blocks, tokens.padded))
        sequences = videos * halves // axes.size(DATA, CFG)
        linear = 2 * config.block_weights * tokens.local * sequences / axes.size(TENSOR) / generation.peak_flops
        seconds[text] = linear + axes.size(RING) * _attention_s(config, tokens, sequences, generation)
    return tuple(sorted(seconds, key=lambda text: seconds[text]))


def _attention_s(config: WanConfig, tokens: Tokens, sequences: int, generation: Generation) -> float:
    """Seconds of one layer's self-attention over the keys of one ring shard."""
    axes, blocks = tokens.axes, tokens.blocks
    ring = axes.size(RING) > 1
    kernel = AttentionKernel(
        name=("splash_mha_fwd" if tokens.even else "splash_mha_fwd_segmented") + ("_residuals" if ring else ""),
        heads=sequences * config.heads // axes.size(ULYSSES, TENSOR),
        q_len=tokens.padded // axes.size(CONTEXT),
        kv_len=tokens.keys,
        head_dim=config.head_dim,
        blocks=(blocks.query, blocks.keys, blocks.compute),
        masked=tokens.keys > tokens.per_ring,
    )
    return attention_seconds(kernel, generation if _has_table(generation.name, config.head_dim) else _TABLED)


def _fit(blocks: Blocks, head_dim: int, generation: Generation) -> bool:
    known = generation.name if _has_table(generation.name, head_dim) else _TABLED
    if blocks.compute % LANES:
        return False
    sizes = (blocks.query, blocks.keys, blocks.compute)
    # A masked kernel is also given an int32 index in every lane for each query, in two buffers; blocks that only fit
    # without it are left out.
    indices = 2 * blocks.query * LANES * 4
    needed = table(known, head_dim, Variant.PLAIN).row(sizes).vmem_bytes + indices
    return fits_vmem(sizes, known, head_dim) and needed <= generation.scoped_vmem_bytes


def _has_table(name: str, head_dim: int) -> bool:
    try:
        table(name, head_dim, Variant.PLAIN)
    except UnknownName:
        return False
    return True
