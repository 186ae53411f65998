"""Transformer layers with many ways to lay them out: a workload whose every candidate compiles in a second or two.

Try it: meshwright tune benchmarks.stack:workload --slice v6e-8x8
"""

import jax
import jax.numpy as jnp

from adapters.jax.workload import Argument, FunctionWorkload, Sharding
from tuner.layouts.layout import Layout
from tuner.layouts.space import COMPILER_DEFAULT, Choice, Dimension
from tuner.rejections import Rejection, RejectReason, Stage

LAYERS, BATCH, LENGTH, HEADS, HEAD, EMBED, MLP = 4, 16, 256, 32, 64, 1024, 4096

WEIGHTS = {
    **dict.fromkeys("qkv", Argument(shape=(LAYERS, EMBED, HEADS, HEAD), names=(None, "kept", "heads", None))),
    "o": Argument(shape=(LAYERS, HEADS, HEAD, EMBED), names=(None, "heads", None, "kept")),
    "up": Argument(shape=(LAYERS, EMBED, MLP), names=(None, "kept", "mlp")),
    "down": Argument(shape=(LAYERS, MLP, EMBED), names=(None, "mlp", "kept")),
}


def stack(s: Sharding, weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """A scan over layers of attention and a feed-forward layer, each with its residual.

    Where the sequence is split, `attention` gathers keys and values or exchanges tokens for heads; `residual` says
    whether the activations between the layers are split over `tensor` as well.
    """
    between = ("batch", "length", "channels" if s.option("residual") == "tensor" else None)
    exchange = s.option("attention") == "exchange"
    queries = ("batch", "exchanged", None, None) if exchange else ("batch", "heads", "length", None)
    keys = queries if exchange else ("batch", "heads", None, None)

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q, k, v = (jnp.einsum("ble,ehd->bhld", x, w[name]) for name in "qkv")
        q, k, v = s.constrain(q, *queries), s.constrain(k, *keys), s.constrain(v, *keys)
        scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / HEAD**0.5, axis=-1)
        attended = s.constrain(jnp.einsum("bhqk,bhkd->bhqd", scores, v), *queries)
        x = s.constrain(x + jnp.einsum("bhld,hde->ble", attended, w["o"]), *between)
        hidden = s.constrain(jax.nn.gelu(x @ w["up"]), "batch", "length", "mlp")
        return s.constrain(x + hidden @ w["down"], *between), None

    return jax.lax.scan(layer, s.constrain(x, *between), weights)[0]


class Stack(FunctionWorkload):
    """Refuses options that make no difference, and an exchange for more heads than there are."""

    def verdict(self, layout: Layout) -> Rejection | None:
        """Returns why a layout is illegal, or None."""
        detail = ""
        if layout.option("attention") == "exchange":
            shards = layout.size("context") * layout.size("tensor")
            if layout.size("context") == 1:
                detail = "attention=exchange needs context above 1"
            elif HEADS % shards:
                detail = f"{HEADS} heads do not divide over context*tensor of size {shards}"
        if layout.option("residual") == "tensor" and layout.size("tensor") == 1:
            detail = "residual=tensor needs tensor above 1"
        if detail:
            return Rejection(stage=Stage.ENUMERATE, reason=RejectReason.ILLEGAL_OPTIONS, detail=detail)
        return super().verdict(layout)


workload = Stack(
    model="stack",
    function=stack,
    arguments=(WEIGHTS, Argument(shape=(BATCH, LENGTH, EMBED), names=("batch", "length", None))),
    dimensions=(
        Dimension(name="data", sizes=(1, 2, 4, 8, 16), what="batch"),
        Dimension(name="kept", sizes=(1, 2, 4, 8, 16), what="batch, with the weights kept split"),
        Dimension(name="context", sizes=(1, 2, 4, 8, 16, 32, 64), what="tokens"),
        Dimension(name="tensor", sizes=(1, 2, 4, 8, 16), what="heads and feed-forward channels"),
    ),
    rules={
        "batch": ("data", "kept"),
        "kept": ("kept",),
        "length": ("context",),
        "heads": ("tensor",),
        "exchanged": ("tensor", "context"),
        "mlp": ("tensor",),
        "channels": ("tensor",),
    },
    options=(
        Choice(name="attention", values=("gather", "exchange"), what="what moves where the sequence is split"),
        Choice(name="residual", values=("whole", "tensor"), what="whether activations between layers are split"),
    ),
    compiler=(
        Choice(
            name="xla_tpu_enable_async_all_to_all",
            values=(COMPILER_DEFAULT, "true"),
            what="whether all-to-alls overlap with what does not wait for them",
            needs=("context",),
        ),
    ),
    results=("batch", "length", None),
    deployed={"kept": 16, "tensor": 4},
)
