"""One transformer block: the smallest workload worth tuning.

Try it: meshwright tune examples.block:workload --slice v5e-2x4
"""

import jax
import jax.numpy as jnp

from adapters.jax.workload import Argument, FunctionWorkload, Sharding
from tuner.layouts.space import Dimension

BATCH, LENGTH, HEADS, HEAD, EMBED, MLP = 8, 4096, 16, 128, 2048, 8192


def block(s: Sharding, params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Attention and a feed-forward layer, each with its residual."""
    q, k, v = (jnp.einsum("ble,ehd->bhld", x, params[name]) for name in ("q", "k", "v"))
    q = s.constrain(q, "batch", "heads", None, None)
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / HEAD**0.5, axis=-1)
    attended = jnp.einsum("bhqk,bhkd->bhqd", scores, v)
    x = s.constrain(x + jnp.einsum("bhld,hde->ble", attended, params["o"]), "batch", None, None)
    hidden = s.constrain(jax.nn.gelu(x @ params["up"]), "batch", None, "mlp")
    return s.constrain(x + hidden @ params["down"], "batch", None, None)


workload = FunctionWorkload(
    model="block",
    function=block,
    arguments=(
        {
            **dict.fromkeys("qkv", Argument(shape=(EMBED, HEADS, HEAD), names=(None, "heads", None))),
            "o": Argument(shape=(HEADS, HEAD, EMBED), names=("heads", None, None)),
            "up": Argument(shape=(EMBED, MLP), names=(None, "mlp")),
            "down": Argument(shape=(MLP, EMBED), names=("mlp", None)),
        },
        Argument(shape=(BATCH, LENGTH, EMBED), names=("batch", None, None)),
    ),
    dimensions=(
        Dimension(name="data", sizes=(1, 2, 4, 8), what="batch"),
        Dimension(name="tensor", sizes=(1, 2, 4, 8, 16), what="heads and feed-forward channels"),
    ),
    rules={"batch": ("data",), "heads": ("tensor",), "mlp": ("tensor",)},
    results=("batch", None, None),
)
