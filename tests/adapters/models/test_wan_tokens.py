from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.models.wan.axes import UNSHARDED, Axes
from adapters.models.wan.tokens import Blocks, Tokens
from tuner.errors import InvalidValue

SIZES = st.sampled_from([1, 2, 3, 4, 5, 8, 16, 32])
KERNEL_BLOCKS = st.sampled_from(["512,512,512", "512,1024,512", "1024,2048,1024", "2048,768,768", "1536,1024,256"])


@settings(deadline=None, max_examples=60)  # positions are traced values, so the first call compiles
@given(real=st.integers(1, 80000), ring=SIZES, context=SIZES, ulysses=SIZES, text=KERNEL_BLOCKS)
def test_every_split_is_exact(real: int, ring: int, context: int, ulysses: int, text: str) -> None:
    axes = Axes(sizes={"ring": ring, "context": context, "ulysses": ulysses})
    tokens = Tokens.split(real, axes, Blocks.parse(text))
    blocks = tokens.blocks
    assert tokens.local * ring * context * ulysses == tokens.total >= real
    assert tokens.local % min(128, blocks.query) == 0  # cross-attention blocks divide it
    assert tokens.padded // context % blocks.query == 0
    assert tokens.per_ring <= tokens.keys <= tokens.padded
    assert tokens.keys % blocks.keys == blocks.keys % blocks.compute == 0
    valid = [int(tokens.valid(shard)) for shard in range(ring)]
    assert sum(valid) == real
    assert tokens.even == (len(set(valid)) == 1)


@pytest.mark.parametrize(
    ("real", "axes", "blocks", "total"),
    [
        (32760, {"ulysses": 4}, "512,1024,512", 32768),
        (32760, {"ulysses": 16}, "512,512,512", 32768),
        (75600, {"ulysses": 8}, "1024,2048,1024", 75776),
        (32760, {"ring": 4, "ulysses": 2}, "512,1024,512", 32768),
    ],
)
def test_padding_of_published_shapes(real: int, axes: dict[str, int], blocks: str, total: int) -> None:
    assert Tokens.split(real, Axes(sizes=axes), Blocks.parse(blocks)).total == total


@pytest.mark.parametrize(("real", "ring"), [(1, 1), (45, 1), (48, 2), (45, 2), (45, 8), (5, 8)])
def test_shards_of_all_positions_hold_every_token_once_and_in_order(real: int, ring: int) -> None:
    class Unmoving(Axes):
        """Ring shards laid side by side on one device."""

        def index(self, *names: str) -> int:
            return 0

        def gather(self, x, *names, dimension):  # type: ignore[no-untyped-def]
            return x

    tokens = Tokens.split(real, Unmoving(sizes={"ring": ring}), Blocks.parse("8,8,8"))
    values = np.arange(1, real + 1)
    laid = np.zeros((ring, tokens.padded), np.int64)
    for shard in range(ring):
        part = values[shard * tokens.per_ring : (shard + 1) * tokens.per_ring]
        laid[shard, : len(part)] = part
        assert len(part) == int(tokens.valid(shard))
    assert (np.asarray(tokens.whole(jnp.asarray(laid.reshape(-1)))) == values).all()
    assert (np.asarray(tokens.shard(jnp.asarray(values))) == laid[0]).all()


def test_one_shard_keeps_tokens_and_pads_at_the_end() -> None:
    tokens = Tokens.split(45, UNSHARDED, Blocks.parse("8,16,8"))
    padded = tokens.shard(jnp.arange(1, 46))
    assert padded.shape == (48,)
    assert not padded[45:].any()


@pytest.mark.parametrize("text", ["512", "a,b,c", "512,500,512", "0,512,512", "512,1024,384"])
def test_what_are_no_blocks(text: str) -> None:
    with pytest.raises(InvalidValue, match="blocks"):
        Blocks.parse(text)
