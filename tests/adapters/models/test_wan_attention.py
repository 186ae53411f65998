"""The splash kernel, interpreted, against plain attention: padded keys count for nothing, not even a little."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adapters.models.wan.attention import plain, splash_attention, splash_partial
from adapters.models.wan.tokens import Blocks

BLOCKS = Blocks(query=128, keys=256, compute=128)


def operands(keys: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    random = np.random.default_rng(0)
    q, k, v = (jnp.asarray(random.normal(size=(2, length, 32)), jnp.float32) for length in (128, keys, keys))
    # Padding that would win every softmax and spoil every sum if it were seen.
    return q, k.at[:, 300:].set(100.0), v.at[:, 300:].set(1e6)


def dense(q: jax.Array, k: jax.Array, v: jax.Array) -> np.ndarray:
    logits = np.einsum("hqd,hkd->hqk", np.float64(q), np.float64(k))
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), np.float64(v))


@pytest.mark.parametrize("kind", ["plain", "splash", "partial", "traced partial"])
def test_keys_beyond_the_valid_ones_are_masked(kind: str) -> None:
    q, k, v = operands(512)
    if kind == "plain":
        out, _ = plain(q, k, v, 300)
    elif kind == "splash":
        out = splash_attention(q, k, v, 300, BLOCKS, interpret=True)
    else:
        valid = 300 if kind == "partial" else jnp.int32(300)
        out, _ = splash_partial(q, k, v, valid, BLOCKS, interpret=True)
    expected = dense(q, k[:, :300], v[:, :300])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_the_log_sum_exp_is_of_the_valid_keys() -> None:
    q, k, v = operands(512)
    logits = np.einsum("hqd,hkd->hqk", np.float64(q), np.float64(k[:, :300]))
    expected = np.log(np.exp(logits - logits.max()).sum(-1)) + logits.max()
    for out in (plain(q, k, v, 300), splash_partial(q, k, v, 300, BLOCKS, interpret=True)):
        np.testing.assert_allclose(out[1], expected, rtol=1e-5)


def test_without_padding_no_mask_is_evaluated() -> None:
    q, k, v = operands(256)
    text = str(jax.make_jaxpr(lambda *qkv: splash_attention(*qkv, 256, BLOCKS))(q, k, v))
    masked = str(jax.make_jaxpr(lambda *qkv: splash_attention(*qkv, 255, BLOCKS))(q, k, v))
    assert "select_n" not in text
    assert "select_n" in masked
