"""What a Wan workload lets the search vary."""

from __future__ import annotations

import itertools

from adapters.models.wan.axes import CFG, CONTEXT, DATA, RING, TENSOR, ULYSSES
from adapters.models.wan.blocks import BLOCKS
from adapters.models.wan.config import WanConfig
from tuner.layouts.space import COMPILER_DEFAULT, Choice, Dimension, Space

GATHERED_FROM = (DATA, CFG, RING, CONTEXT, ULYSSES)
"""Mesh axes that weights may be kept split over, outermost first."""

LARGEST = 256

COMPILER = (
    Choice(
        name="xla_tpu_enable_async_all_to_all",
        values=(COMPILER_DEFAULT, "true"),
        what="whether all-to-alls overlap with what does not wait for them",
        needs=(ULYSSES,),
    ),
    Choice(
        name="xla_tpu_sliced_prefetch_max_slices",
        values=("1", COMPILER_DEFAULT),
        what="slices of a fetch from HBM ahead of use; with 1 the compiler joins no slices by calls of its own",
    ),
)
"""Compiler flags that are useful and safe.

Left out: asynchronous collective fusion with overlapped compute (``xla_tpu_enable_async_collective_fusion`` with
``xla_tpu_overlap_compute_collective_tc``), which gave NaN with Ulysses and splash attention on v6e
(AI-Hypercomputer/maxdiffusion#429); and ``xla_tpu_scoped_vmem_limit_kib``, whose larger blocks have no
cycles in the table yet.
"""


def gathered_axes(option: str) -> tuple[str, ...] | None:
    """Returns the mesh axes that an option of `weights` names, or None if it is no such option."""
    if option == "replicated":
        return ()
    if option == "all":
        return GATHERED_FROM
    names = tuple(option.split("+"))
    return names if names == tuple(name for name in GATHERED_FROM if name in names) else None


def wan_space(config: WanConfig, *, videos: int, guidance: bool, plain: bool = False) -> Space:
    """Returns the space of one workload; it depends on nothing but the workload's identity. `plain` as in `Preset`."""
    powers = _powers(LARGEST)
    of_heads = tuple(sorted({*powers, *_divisors(config.heads)}))
    return Space(
        dimensions=(
            Dimension(name=DATA, sizes=_divisors(videos), what="videos"),
            Dimension(name=CFG, sizes=(1, 2) if guidance else (1,), what="guidance halves"),
            Dimension(name=RING, sizes=_powers(32), what="tokens; keys and values passed around a ring"),
            Dimension(name=CONTEXT, sizes=powers, what="tokens; keys and values gathered"),
            Dimension(name=ULYSSES, sizes=of_heads, what="tokens, exchanged for heads in attention"),
            Dimension(name=TENSOR, sizes=of_heads, what="attention heads and feed-forward channels"),
        ),
        options=(
            Choice(
                name="weights",
                values=("replicated",) if plain else _weights(videos, guidance),
                what="mesh axes that weights are kept split over",
            ),
        ),
        tuned=(
            Choice(
                name="blocks",
                values=BLOCKS[:1] if plain else BLOCKS,
                what="attention blocks: queries, keys, keys computed at once",
            ),
        ),
        compiler=() if plain else COMPILER,
    )


def _weights(videos: int, guidance: bool) -> tuple[str, ...]:
    axes = [name for name in GATHERED_FROM if (name != DATA or videos > 1) and (name != CFG or guidance)]
    pairs = [pair for pair in itertools.combinations(axes, 2) if pair != (RING, CONTEXT)]
    return ("replicated", *axes, *("+".join(pair) for pair in pairs), "all")


def _powers(largest: int) -> tuple[int, ...]:
    return tuple(1 << i for i in range(largest.bit_length()))


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)
