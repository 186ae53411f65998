from __future__ import annotations

import math

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.models.wan.config import PRESETS, VideoShape, parse_shape
from adapters.models.wan.parameters import leaves
from tuner.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "latent", "tokens"),
    [
        ("832x480x81", (21, 60, 104), 32760),
        ("1280x720x81", (21, 90, 160), 75600),
        ("480x832x1", (1, 104, 60), 1560),
    ],
)
def test_latents_and_tokens_of_a_shape(text: str, latent: tuple[int, int, int], tokens: int) -> None:
    shape = parse_shape(text)
    assert (shape.latent, shape.tokens, str(shape)) == (latent, tokens, text)


@pytest.mark.parametrize(
    ("text", "nearest"), [("830x480x81", "832x480x81"), ("832x481x81", "832x480x81"), ("832x480x80", "832x480x81")]
)
def test_an_illegal_shape_names_the_nearest_legal_one(text: str, nearest: str) -> None:
    with pytest.raises(InvalidValue, match=f"nearest legal shape is {nearest}"):
        parse_shape(text)


@pytest.mark.parametrize("text", ["832x480", "832x480x81x1", "axbxc", "", "-832x480x81"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(InvalidValue, match="widthxheightxframes"):
        parse_shape(text)


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 200))
def test_the_nearest_shape_is_legal(width: int, height: int, frames: int) -> None:
    try:
        VideoShape(width=width, height=height, frames=frames)
    except InvalidValue as error:
        nearest = parse_shape(str(error).rsplit(" ", 1)[1])
        assert abs(nearest.frames - frames) <= 2
        assert abs(nearest.width - width) <= (8 if width >= 8 else 16)


@pytest.mark.parametrize(
    ("model", "billions", "block_millions"),
    [
        ("wan2.1-t2v-1.3b", 1.4190, 46.441),
        ("wan2.1-t2v-14b", 14.2885, 351.394),
        ("wan2.1-i2v-14b", 16.3949, 403.838),
        ("wan2.2-t2v-a14b-high", 14.2885, 351.394),
    ],
)
def test_parameter_counts_are_those_of_the_published_models(model: str, billions: float, block_millions: float) -> None:
    config = PRESETS[model].config
    tree = leaves(config)
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
    block = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree["blocks"])) / config.layers
    assert total / 1e9 == pytest.approx(billions, abs=1e-4)
    assert block / 1e6 == pytest.approx(block_millions, abs=1e-3)
