"""Predicted against published attention seconds, one row for each published figure that tells attention apart.

    python benchmarks/published.py

The prediction is `tuner.calibration.attention` as it ships, and no constant of it was fitted to a row here. Where a
source does not say with which blocks its kernel ran, the fastest that fit the default scoped VMEM are assumed, with
padded keys masked; blocks that public recipes name stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.calibration.attention import attention_seconds, best_blocks, fits_vmem
from tuner.program.program import AttentionKernel

PLAIN = "splash_mha_fwd_no_residuals"
SEGMENTED = "splash_mha_fwd_segmented_no_residuals"
Blocks = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one chip executes, and what was published of it. `blocks` is None where the source does not say."""

    name: str
    source: str
    generation: str
    calls: int
    heads: int
    tokens: int
    published_s: float
    blocks: Blocks | None = None


ROWS = (
    # Guidance halves on two groups of four chips, Ulysses over the four; 225 s for 50 steps, 66.8 % of it attention.
    # The share comes from the profile of the next row, whose kernel has half the heads: not one measurement.
    Row(
        name="Wan 2.1 14B 720p 81 frames, v6e-8, one step",
        source="github.com/yangwhale/gpu-tpu-pedia tpu/Wan documents",
        generation="v6e",
        calls=40,
        heads=40 // 4,
        tokens=75_600,
        published_s=0.668 * 4.5,
    ),
    # 75600 queries and 75776 keys of 5 heads; whether padded keys were masked is not said.
    Row(
        name="the same model, 5 heads on v6e, one call of splash attention",
        source="github.com/yangwhale/gpu-tpu-pedia tpu/Wan2.2/docs/wan_tpu_optimization_guide.md 4.1.2",
        generation="v6e",
        calls=1,
        heads=5,
        tokens=75_600,
        published_s=43.93e-3,
        blocks=(3024, 2048, 1024),
    ),
)
# Blocks of MaxDiffusion's README for v6e, its default, and two that other public recipes for v6e and v7x name.
RECIPES: tuple[Blocks, ...] = ((3024, 2048, 1024), (512, 512, 512), (3328, 2816, 256), (2048, 2048, 1024))


def seconds(row: Row, blocks: Blocks, *, name: str = PLAIN, masked: bool = False) -> float:
    kernel = AttentionKernel(
        name=name,
        heads=row.heads,
        q_len=row.tokens,
        kv_len=row.tokens,
        head_dim=128,
        blocks=blocks,
        masked=masked,
    )
    return row.calls * attention_seconds(kernel, row.generation)


def main() -> None:
    for row in ROWS:
        print(f"{row.name}: published {row.published_s:.4g} s ({row.source})")
        if row.blocks is None:
            chosen = best_blocks(row.tokens, row.tokens, row.generation)[0].blocks
            line(row, chosen, "masked, the prediction", seconds(row, chosen, masked=True))
        for blocks in RECIPES if row.blocks is None else (row.blocks,):
            line(row, blocks, "nothing masked", seconds(row, blocks))
            line(row, blocks, "masked by index", seconds(row, blocks, masked=True))
            line(row, blocks, "masked by segment ids", seconds(row, blocks, name=SEGMENTED))


def line(row: Row, blocks: Blocks, note: str, predicted_s: float) -> None:
    fits = "" if fits_vmem(blocks, row.generation) else "; needs a raised limit of scoped VMEM"
    print(f"  {blocks!s:>18} {predicted_s:7.4g} s {predicted_s / row.published_s - 1:+7.1%}  {note}{fits}")


if __name__ == "__main__":
    main()
