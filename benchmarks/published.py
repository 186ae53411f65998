"""Predicted against published attention seconds, one row for each published step whose attention can be worked out.

    python benchmarks/published.py

The prediction is `tuner.calibration.attention` as it ships; no constant of it was fitted to a row here. Published
sources do not say with which blocks their kernel ran, so each row is predicted with the fastest blocks that fit the
default scoped VMEM, and beside it with blocks that public recipes name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.calibration.attention import attention_seconds, best_blocks, fits_vmem
from tuner.program.program import AttentionKernel

PLAIN = "splash_mha_fwd_no_residuals"
SEGMENTED = "splash_mha_fwd_segmented_no_residuals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published step: what one chip executes of its attention, and what was published."""

    name: str
    generation: str
    layers: int
    heads: int
    tokens: int


ROWS = (
    # Wan 2.1 14B, 1280x720, 81 frames on v6e-8: guidance halves on two groups of four chips, Ulysses over the four.
    Row(name="wan14b-720p81-v6e8", generation="v6e", layers=40, heads=40 // 4, tokens=75_600),
)
# Blocks of MaxDiffusion's README for v6e, its default, and two that other public recipes for v6e and v7x name.
RECIPES = ((3024, 2048, 1024), (512, 512, 512), (3328, 2816, 256), (2048, 2048, 1024))


def seconds(row: Row, blocks: tuple[int, int, int], name: str) -> float:
    kernel = AttentionKernel(
        name=name, heads=row.heads, q_len=row.tokens, kv_len=row.tokens, head_dim=128, blocks=blocks
    )
    return row.layers * attention_seconds(kernel, row.generation)


def main() -> None:
    for row in ROWS:
        print(f"{row.name}: seconds of self-attention in one step on one chip")
        chosen = best_blocks(row.tokens, row.tokens, row.generation)[0]
        predicted_s = row.layers * row.heads * chosen.seconds
        print(f"  {chosen.blocks!s:>18}: {predicted_s:.2f} <- the prediction: fastest that fit, padded keys masked")
        for blocks in RECIPES:
            fits = "" if fits_vmem(blocks, row.generation) else ", needs a raised limit of scoped VMEM"
            plain, segmented = (seconds(row, blocks, name) for name in (PLAIN, SEGMENTED))
            print(f"  {blocks!s:>18}: {plain:.2f} plain, {segmented:.2f} with segment ids{fits}")


if __name__ == "__main__":
    main()
